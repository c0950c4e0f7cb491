package lookback

import (
	"strings"
	"sync"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// MaxPaths limits the paths that a Recorder keeps, maxPathBytes the sum of their lengths. A run
// with more lookups is not remembered.
const (
	MaxPaths     = 1 << 16
	maxPathBytes = 256 * MaxPaths
)

// A Recorder collects the lookups of one run in its input root. Its zero value is ready; its
// methods may be called concurrently.
type Recorder struct {
	mu    sync.Mutex
	looks map[string]tree.Look
	bytes int  // of their paths
	lost  bool // there was more than the bounds let
}

// Look records an access to path: "" is the root, all others are like "a/b". It is the OnLook of a
// root.
func (r *Recorder) Look(path string, l tree.Look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looks == nil {
		r.looks = map[string]tree.Look{}
	}
	known, ok := r.looks[path]
	if !ok {
		if len(r.looks) == MaxPaths || r.bytes+len(path) > maxPathBytes {
			r.lost = true
			return
		}
		r.bytes += len(path)
	}
	r.looks[path] = known | l
}

// A node is a path that was accessed, or a parent of one.
type node struct {
	looks tree.Look
	names map[string]*node
}

// looked returns the accesses as a tree, or false if that is incomplete.
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
