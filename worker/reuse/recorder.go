package reuse

import (
	"strings"
	"sync"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// maxPaths bounds the paths that a Recorder keeps, maxPathBytes the sum of their lengths. A run that
// looks at more is not remembered.
const (
	maxPaths     = 1 << 16
	maxPathBytes = 256 * maxPaths
)

// A Recorder gathers what one run looks at in its input root. Its zero value is
// ready; its methods may be called concurrently.
type Recorder struct {
	mu    sync.Mutex
	looks map[string]tree.Look
	bytes int  // of their paths
	lost  bool // there was more than the bounds let
}

// Look notes a look at path: "" is the root, all others are like "a/b". It is made to
// be the OnLook of a root.
func (r *Recorder) Look(path string, l tree.Look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looks == nil {
		r.looks = map[string]tree.Look{}
	}
	known, ok := r.looks[path]
	if !ok {
		if len(r.looks) == maxPaths || r.bytes+len(path) > maxPathBytes {
			r.lost = true
			return
		}
		r.bytes += len(path)
	}
	r.looks[path] = known | l
}

// A node is a path that was looked at, or lies on the way to one.
type node struct {
	looks tree.Look
	names map[string]*node
}

// looked returns what was looked at as a tree, or false if that is not all.
func (r *Recorder) looked() (root *node, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	root = &node{}
	for path, l := range r.looks {
		at := root
		for path != "" {
			var name string
			name, path, _ = strings.Cut(path, "/")
			next := at.names[name]
			if next == nil {
				next = &node{}
				if at.names == nil {
					at.names = map[string]*node{}
				}
				at.names[name] = next
			}
			at = next
		}
		at.looks |= l
	}
	return root, !r.lost
}
