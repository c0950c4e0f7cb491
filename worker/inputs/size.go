package inputs

import (
	"math"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	inputtree "github.com/forerunner-build/forerunner/cas/tree"
)

// The bounds of finding out how large an input root is.
const (
	maxSizes  = 1 << 16 // directories with kept sums, over all actions
	maxVisits = 1 << 16 // directories read for one action
)

// A Size is the total below a directory; a file counts for each of its paths. It is a lower bound
// unless it is Whole, because directories that the worker does not have are not read.
type Size struct {
	Files, Bytes int64
	Whole        bool
}

func (s *Size) add(o Size) {
	s.Files = sumOf(s.Files, o.Files)
	s.Bytes = sumOf(s.Bytes, o.Bytes)
	s.Whole = s.Whole && o.Whole
}

// sumOf adds numbers that a small tree can make huge: one directory may be in it at very many
// paths.
func sumOf(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Sizes remember the sums of subtrees, which most actions share. Methods may be called
// concurrently.
type Sizes struct {
	sums *bounded.Shared[digest.Digest, Size] // of whole subtrees
}

// NewSizes returns empty Sizes.
func NewSizes() *Sizes {
	return &Sizes{bounded.NewShared[digest.Digest, Size](maxSizes)}
}

// LocalDirectories is the part of fetch.ReadThrough that a walk needs.
type LocalDirectories interface {
	LocalDirectory(d digest.Digest) (*inputtree.Directory, bool)
}

// Of returns the size of the tree below d. It waits only for the disk, and only for directories
// that it has not seen before.
func (s *Sizes) Of(source LocalDirectories, d digest.Digest) Size {
	w := sizeWalk{source: source, sizes: s, seen: map[digest.Digest]Size{}}
	return w.visit(d)
}

type sizeWalk struct {
	source LocalDirectories
	sizes  *Sizes
	seen   map[digest.Digest]Size // in this walk
	visits int
}

func (w *sizeWalk) visit(d digest.Digest) Size {
	if sum, ok := w.seen[d]; ok {
		return sum
	}
	if sum, ok := w.sizes.sums.Get(d); ok {
		return sum
	}
	if w.visits++; w.visits > maxVisits {
		return Size{}
	}
	dir, ok := w.source.LocalDirectory(d)
	if !ok {
		w.seen[d] = Size{}
		return Size{}
	}
	sum := Size{Whole: true}
	for i := range dir.Len() {
		switch e := dir.At(i); e.Kind {
		case inputtree.Dir:
			sum.add(w.visit(e.Digest))
		case inputtree.File:
			sum.add(Size{Files: 1, Bytes: e.Digest.SizeBytes(), Whole: true})
		}
	}
	if w.seen[d] = sum; sum.Whole {
		w.sizes.sums.Put(d, sum)
	}
	return sum
}
