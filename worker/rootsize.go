package worker

import (
	"math"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	inputtree "github.com/forerunner-build/forerunner/cas/tree"
)

// The bounds of finding out how large an input root is.
const (
	maxRootSizes = 1 << 16 // directories whose sums are kept, over all actions
	maxRootVisit = 1 << 16 // directories looked at for one action
)

// A rootSize is how much there is below a directory, once per path. It is a lower
// bound unless it is whole: directories that the worker does not have are not looked at.
type rootSize struct {
	files, bytes int64
	whole        bool
}

func (s *rootSize) add(o rootSize) {
	s.files = sumOf(s.files, o.files)
	s.bytes = sumOf(s.bytes, o.bytes)
	s.whole = s.whole && o.whole
}

// sumOf adds what a small tree can make too large: one directory may be in it at very
// many paths.
func sumOf(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// rootSizes remember the sums of subtrees, which most actions share. The zero value is
// ready; methods may be called concurrently.
type rootSizes struct {
	mu   sync.Mutex
	sums map[digest.Digest]rootSize // guarded by mu; of whole subtrees
}

// localDirectories is the part of fetch.ReadThrough that a walk needs.
type localDirectories interface {
	LocalDirectory(d digest.Digest) (*inputtree.Directory, bool)
}

// of returns the size of the tree below d. It waits for nothing but the disk, and that
// only for directories that it has not seen before.
func (s *rootSizes) of(source localDirectories, d digest.Digest) rootSize {
	w := sizeWalk{source: source, sizes: s, seen: map[digest.Digest]rootSize{}}
	return w.visit(d)
}

type sizeWalk struct {
	source localDirectories
	sizes  *rootSizes
	seen   map[digest.Digest]rootSize // in this walk
	visits int
}

func (w *sizeWalk) visit(d digest.Digest) rootSize {
	if sum, ok := w.seen[d]; ok {
		return sum
	}
	if sum, ok := w.sizes.get(d); ok {
		return sum
	}
	if w.visits++; w.visits > maxRootVisit {
		return rootSize{}
	}
	dir, ok := w.source.LocalDirectory(d)
	if !ok {
		w.seen[d] = rootSize{}
		return rootSize{}
	}
	sum := rootSize{whole: true}
	for i := range dir.Len() {
		switch e := dir.At(i); e.Kind {
		case inputtree.Dir:
			sum.add(w.visit(e.Digest))
		case inputtree.File:
			sum.add(rootSize{files: 1, bytes: e.Digest.SizeBytes(), whole: true})
		}
	}
	if w.seen[d] = sum; sum.whole {
		w.sizes.keep(d, sum)
	}
	return sum
}

func (s *rootSizes) get(d digest.Digest) (rootSize, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum, ok := s.sums[d]
	return sum, ok
}

func (s *rootSizes) keep(d digest.Digest, sum rootSize) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil || len(s.sums) >= maxRootSizes {
		s.sums = map[digest.Digest]rootSize{} // those in use are soon there again
	}
	s.sums[d] = sum
}
