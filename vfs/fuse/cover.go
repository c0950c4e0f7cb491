package fuse

import (
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A Cover says which entries of a directory images show, so that this layer does not. Without one,
// the layer shows the whole directory.
type Cover interface {
	// Whole reports that an image shows the directory except for the listed entries: then this
	// layer shows only these. Otherwise this layer shows the directory, and the listed entries only
	// in part.
	Whole() bool
	// Child returns the listed entry of that name.
	Child(name string) (Covered, bool)
	// Len and At are the list, in the order of names.
	Len() int
	At(i int) Covered
}

// Covered is a name in a directory that images show in part.
type Covered struct {
	Entry tree.Entry
	Rest  Cover // nil if the image lacks it, and this layer shows it in full
}

// hidden reports that this layer shows nothing: an image has all of it.
func hidden(c Cover) bool { return c != nil && c.Whole() && c.Len() == 0 }

// shown is the part of a directory that the FUSE layer shows.
type shown struct {
	dir   *tree.Directory // nil if an image has the directory
	cover Cover           // nil if no image has a part of it
}

// find returns the shown entry of that name.
func (s shown) find(name string) (e tree.Entry, rest Cover, ok bool) {
	if s.cover != nil {
		if c, ok := s.cover.Child(name); ok {
			return c.Entry, c.Rest, !hidden(c.Rest)
		}
	}
	if s.dir == nil {
		return e, nil, false
	}
	e, ok = s.dir.Find(name)
	return e, nil, ok
}

// len returns the number of places, some of which may be without an entry.
func (s shown) len() int {
	if s.dir == nil {
		return s.cover.Len()
	}
	return s.dir.Len()
}

// at returns entry i. False means that an image shows it.
func (s shown) at(i int) (c Covered, ok bool) {
	if s.dir == nil {
		return s.cover.At(i), true
	}
	c.Entry = s.dir.At(i)
	if s.cover != nil {
		if c, ok := s.cover.Child(c.Entry.Name); ok {
			return c, !hidden(c.Rest)
		}
	}
	return c, true
}
