package image

import (
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// Cover lists the entries of a directory that the FUSE layer shows when metadata images above it
// show the others. With a nil cover there is no image, and the FUSE layer shows all entries.
type Cover struct {
	// image shows what FUSE does not; then FUSE shows only the names in below. If it is nil, FUSE
	// shows everything, and below has the names that it shows in part.
	image *image
	below []Covered // in order of names
}

// Covered is a name in a directory that images show in part.
type Covered struct {
	Entry tree.Entry
	Rest  *Cover // nil for a hole: the image lacks it, and FUSE shows it in full
}

// Child returns the cover of name.
func (c *Cover) Child(name string) (Covered, bool) {
	i, ok := slices.BinarySearchFunc(c.below, name, compareName)
	if !ok {
		return Covered{}, false
	}
	return c.below[i], true
}

func compareName(e Covered, name string) int { return strings.Compare(e.Entry.Name, name) }

// Whole reports that an image shows the directory except for the entries in Len and At. Otherwise
// FUSE shows it except for them.
func (c *Cover) Whole() bool { return c.image != nil }

// Len returns the number of listed names.
func (c *Cover) Len() int { return len(c.below) }

// At returns a listed name, from 0 to Len()-1, in order.
func (c *Cover) At(i int) Covered { return c.below[i] }

// Empty reports that FUSE shows nothing: an image has all of it.
func (c *Cover) Empty() bool { return c != nil && c.image != nil && len(c.below) == 0 }

// cloneEntry returns a copy of e, so that the Directory can be freed.
func cloneEntry(e tree.Entry) tree.Entry {
	e.Name, e.Target = strings.Clone(e.Name), strings.Clone(e.Target)
	return e
}

// graft notes in c, the cover of a root, that an image shows a directory, of which it has what whole
// says. entries are those of the directories on the way, that one included. No image may lie within
// another one.
func (c *Cover) graft(whole *Cover, entries []tree.Entry) {
	for i, e := range entries {
		at, ok := slices.BinarySearchFunc(c.below, e.Name, compareName)
		if !ok {
			rest := &Cover{}
			if i == len(entries)-1 {
				rest = whole
			}
			c.below = slices.Insert(c.below, at, Covered{e, rest})
		}
		c = c.below[at].Rest
	}
}
