package vfs

import (
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// cover says what of a directory the FUSE layer shows when metadata images
// below it show the rest. A nil cover: everything, no image is in play.
type cover struct {
	// image shows what FUSE does not: then FUSE shows nothing but the names in
	// below. If it is nil, FUSE shows everything, and below has the names of which
	// it does not show all.
	image *image
	below []covered // in order of names
}

// covered is a name in a directory of which images show a part.
type covered struct {
	entry tree.Entry
	rest  *cover // nil for a hole: what an image lacks, and FUSE shows in full
}

// child returns what is said of name.
func (c *cover) child(name string) (covered, bool) {
	i, ok := slices.BinarySearchFunc(c.below, name, compareName)
	if !ok {
		return covered{}, false
	}
	return c.below[i], true
}

func compareName(e covered, name string) int { return strings.Compare(e.entry.Name, name) }

// empty reports that FUSE shows nothing: an image has all of it.
func (c *cover) empty() bool { return c != nil && c.image != nil && len(c.below) == 0 }

// hole notes that the image lacks e, which comes after all that was noted.
func (c *cover) hole(e tree.Entry) { c.below = append(c.below, covered{entry: cloneEntry(e)}) }

// cloneEntry returns e in memory of its own, so that the Directory can go.
func cloneEntry(e tree.Entry) tree.Entry {
	e.Name, e.Target = strings.Clone(e.Name), strings.Clone(e.Target)
	return e
}

// graft notes in c, the cover of a root, that an image shows the directory at
// its path; entries are those of the directories on the way, that one included.
// No image may lie within another one.
func (c *cover) graft(img *image, entries []tree.Entry) {
	for i, e := range entries {
		at, ok := slices.BinarySearchFunc(c.below, e.Name, compareName)
		if !ok {
			rest := &cover{}
			if i == len(entries)-1 {
				rest = img.cover
			}
			c.below = slices.Insert(c.below, at, covered{e, rest})
		}
		c = c.below[at].rest
	}
}

// shown is what the FUSE layer shows of a directory.
type shown struct {
	dir   *tree.Directory // nil if an image has the directory
	cover *cover          // nil if no image has a part of it
}

// find returns what is shown under name.
func (s shown) find(name string) (e tree.Entry, rest *cover, ok bool) {
	if s.cover != nil {
		if c, ok := s.cover.child(name); ok {
			return c.entry, c.rest, !c.rest.empty()
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
		return len(s.cover.below)
	}
	return s.dir.Len()
}

// at returns what is in place i. False means that an image shows it.
func (s shown) at(i int) (c covered, ok bool) {
	if s.dir == nil {
		return s.cover.below[i], true
	}
	c.entry = s.dir.At(i)
	if s.cover != nil {
		if c, ok := s.cover.child(c.entry.Name); ok {
			return c, !c.rest.empty()
		}
	}
	return c, true
}
