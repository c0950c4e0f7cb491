package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/bounded/least"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// A Queue is State's view of one queue. It is a value.
type Queue struct {
	Prefix    string
	Platform  request.Platform
	SizeClass uint32
	// Workers are its worker programs, Loads the load of each, in any order.
	Workers Workers
	Loads   []Load
	// Executing is the number of actions on workers, Queued the number of waiting ones.
	Executing, Queued int
	// Head is the next operation, nil if none that may run is waiting; Why is the reason why it
	// waits.
	Head      *request.Operation
	HeadSince time.Time
	Why       string
	Root      Branch
}

// A Branch is a part of a queue whose operations have the same key.
type Branch struct {
	Key string
	// Queued is the number of operations that wait here and below; one action may have several.
	// Running is the running work, in all size classes of the platform, each action with its size
	// class: it decides the next turn. For the root they are the numbers of waiting and running
	// actions.
	Queued, Running int
	// Due is the branch's share among its siblings: its weight, adjusted by the best waiting
	// priority. 0 for the root.
	Due float64
	// Why is the reason why none of its operations may start; empty if they may.
	Why string
	// Children are the busiest children; Omitted is the number of the others.
	Children []Branch
	Omitted  int
}

// BranchOf returns a queue by its keys, below the root of its tree. It returns a limited number of
// branches: the busiest ones of each level, the outer levels first. It visits only the children of
// these. Held returns the reason why no operation of a key of the first level may start.
func BranchOf(tree fair.Node, atMost int, held func(key string) string) Branch {
	type opened struct {
		node   fair.Node
		branch *Branch
	}
	var root Branch
	for level := []opened{{tree, &root}}; len(level) > 0; {
		var next []opened
		for _, o := range level {
			children, omitted := busiest(o.node, atMost)
			atMost -= len(children)
			o.branch.Children, o.branch.Omitted = make([]Branch, len(children)), omitted
			for i, child := range children {
				v := child.View
				b := Branch{Key: v.Key, Queued: v.Queued, Running: int(v.Running), Due: v.Due}
				if v.Held && v.Depth == 1 {
					b.Why = held(v.Key)
				}
				o.branch.Children[i] = b
				next = append(next, opened{child.Node, &o.branch.Children[i]})
			}
		}
		level = next
	}
	return root
}

// A child is a branch of the tree with its view.
type child struct {
	fair.Node
	fair.View
}

// busiest returns at most so many of the direct children of a branch, and the number of others.
// Branches that only have workers do not count.
func busiest(parent fair.Node, atMost int) (children []child, omitted int) {
	kept := least.Of(atMost, func(x, y child) int {
		return cmp.Or(cmp.Compare(y.Queued, x.Queued), cmp.Compare(y.Running, x.Running), cmp.Compare(x.Key, y.Key))
	})
	all := 0
	for node := range parent.Children() {
		if v := node.View(); v.Queued > 0 || v.Running > 0 {
			all++
			kept.Add(child{node, v})
		}
	}
	children = kept.Sorted()
	return children, all - len(children)
}

// Behind names the branch whose actions run on most of the workers, if there is one.
func (b Branch) Behind() string {
	all := 0
	for _, child := range b.Children {
		all += child.Running
	}
	var path []string
	running := 0
	for level := b.Children; ; {
		i := slices.IndexFunc(level, func(child Branch) bool { return 2*child.Running > all })
		if i < 0 || all == 0 {
			break
		}
		if level[i].Key != "" {
			path = append(path, level[i].Key)
		}
		running, level = level[i].Running, level[i].Children
	}
	if len(path) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d %% of the running actions belong to %s", 100*running/all, strings.Join(path, " › "))
}
