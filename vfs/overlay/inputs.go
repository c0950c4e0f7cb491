package overlay

import (
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Inputs are the tree that the lower layers show.
type Inputs struct {
	Root      digest.Digest
	Directory func(digest.Digest) (*tree.Directory, error)
}

// An input is one of Inputs; the zero value is none.
type input struct {
	tree.Entry
	path []string // among the inputs
}

func (i Inputs) top() input { return input{Entry: tree.Entry{Kind: tree.Dir, Digest: i.Root}} }

// behind returns the input that overlayfs puts behind the entry e with this name, in a directory
// with the lower directory dir, if there is one.
func (i Inputs) behind(dir input, name string, e entry) (input, bool) {
	switch {
	case e.opaque:
		return input{}, false
	case strings.HasPrefix(e.redirect, "/"):
		return i.find(i.top(), strings.Split(e.redirect[1:], "/"))
	case e.redirect != "":
		name = e.redirect
	}
	return i.find(dir, []string{name})
}

// find returns the input at names below in.
func (i Inputs) find(in input, names []string) (input, bool) {
	path := slices.Concat(in.path, names)
	for _, name := range names {
		if in.Kind != tree.Dir {
			return input{}, false
		}
		d, err := i.Directory(in.Digest)
		if err != nil {
			return input{}, false
		}
		var ok bool
		if in.Entry, ok = d.Find(name); !ok {
			return input{}, false
		}
	}
	in.path = path
	return in, true
}
