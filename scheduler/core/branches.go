package core

import (
	"cmp"
	"time"

	"github.com/forerunner-build/forerunner/bounded/least"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// A QueueView is what State knows of one queue. It is a value.
type QueueView struct {
	Prefix    string
	Platform  request.Platform
	SizeClass uint32
	// Workers are its programs, Loads what each of them has to do, in any order.
	Workers Workers
	Loads   []Load
	// Executing counts the actions that workers have, Queued those that wait.
	Executing, Queued int
	// Head is the operation that is next, nil if none waits that may run; Why says for
	// what.
	Head      *request.Operation
	HeadSince time.Time
	Why       string
	Root      Branch
}

// A Branch is a part of a queue whose operations have a key in common.
type Branch struct {
	Key string
	// Queued counts the operations that wait here and below; one action may have
	// several. Running is what runs, in all size classes of the platform, each action
	// with its size class: what decides whose turn it is. Of the root they count the
	// actions that wait and run.
	Queued, Running int
	// Due is what the branch is due against its siblings: its weight, shifted by the best
	// priority of what waits. 0 for the root.
	Due float64
	// Why says why nothing of it may start; empty: it may.
	Why string
	// Children are the busiest ones; Omitted counts the others.
	Children []Branch
	Omitted  int
}

// QueueCounts returns how much there is of what in all queues, in the order of their
// prefix, platform and size class; what is after Executing and Queued is empty. It looks at every
// worker.
func (s *View) QueueCounts() (queues []QueueView) {
	s.eachQueue(func(_ *queue, v QueueView) { queues = append(queues, v) })
	return queues
}

func (s *View) eachQueue(do func(*queue, QueueView)) {
	for _, p := range s.dispatch.pools.Sorted() {
		for _, q := range p.queues {
			v := QueueView{Prefix: p.Prefix, Platform: p.Platform, SizeClass: q.class, Queued: q.waiting}
			v.Loads = make([]Load, 0, len(q.programs))
			for _, program := range q.programs {
				load := program.load()
				v.Executing += load.Actions
				v.Loads = append(v.Loads, load)
				v.Workers.add(program.condition())
			}
			do(q, v)
		}
	}
}

// Queues is QueueCounts and more, with at most so many branches of each queue, and what
// is with the actions that none of them serves.
func (s *View) Queues(branches int) (queues []QueueView, unmatched QueueView) {
	s.eachQueue(func(q *queue, v QueueView) {
		v.Root = q.branches(v.Executing, branches)
		if t := q.head(s.Now); t != nil {
			v.Head, v.HeadSince, v.Why = t.spec, t.queued, s.whyWaits(q)+
				s.dispatch.otherClasses(q, t)+v.Root.behind()
		} else if q.waiting > 0 {
			v.Why = allHeld
		}
		queues = append(queues, v)
	})
	unmatched.Queued = s.dispatch.unmatched.count
	if t := s.dispatch.unmatched.first; t != nil {
		unmatched.Head, unmatched.HeadSince, unmatched.Why = t.spec, t.queued, s.dispatch.pools.explain(t.spec)
	}
	return queues, unmatched
}

// branches returns the queue by its keys, with at most so many of them: the busiest
// ones of each level, the outer levels first. It looks at the children of those alone.
func (q *queue) branches(running, atMost int) Branch {
	type opened struct {
		node   fair.Node
		branch *Branch
	}
	root := Branch{Queued: q.waiting, Running: running}
	for level := []opened{{q.pool.tree.Root(q.class), &root}}; len(level) > 0; {
		var next []opened
		for _, o := range level {
			children, omitted := busiest(o.node, atMost)
			atMost -= len(children)
			o.branch.Children, o.branch.Omitted = make([]Branch, len(children)), omitted
			for i, child := range children {
				v := child.View
				b := Branch{Key: v.Key, Queued: v.Queued, Running: int(v.Running), Due: v.Due}
				if v.Held && v.Depth == 1 {
					b.Why = q.pool.cohort.WhyHeld(v.Key, q.class)
				}
				o.branch.Children[i] = b
				next = append(next, opened{child.Node, &o.branch.Children[i]})
			}
		}
		level = next
	}
	return root
}

// A child is a branch of the tree with what there is of it.
type child struct {
	fair.Node
	fair.View
}

// busiest returns at most so many of the branches right below one, and how many others there are. Those that
// only have workers do not count.
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
