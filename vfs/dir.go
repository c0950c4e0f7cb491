package vfs

import (
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// A Dir is an open folder of a root. Lookups in it cost the same at any depth, while
// [Root.Unchanged] and [Root.Written] walk from the top each time. It belongs to one goroutine,
// which closes it before the root.
type Dir interface {
	// Unchanged is Root.Unchanged for the folder's entry with that name.
	Unchanged(name string) (Input, bool)
	// Written is Root.Written for the folder's entry with that name. The returned path is valid
	// until Close.
	Written(name string) (string, bool)
	// Enter opens the subfolder with that name. It follows no symlink.
	Enter(name string) (Dir, error)
	Close()
}

// Enter opens the folder at path (relative, slash-separated, "." for the root). It follows no
// symlink.
func (r *Root) Enter(path string) (Dir, error) {
	names, ok := splitPath(path)
	if path == "." {
		names, ok = nil, true
	}
	if !ok {
		return nil, unix.EINVAL
	}
	return r.enter(names)
}

// enter is Enter with the names of the path.
func (r *Root) enter(names []string) (Dir, error) {
	p, err := r.top()
	for _, name := range names {
		if err != nil {
			return nil, err
		}
		var next Dir
		next, err = p.Enter(name)
		p.Close()
		p = next
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// layerDir is a folder that a layer holds open, of the type P.
type layerDir[P any] interface {
	// Unchanged is Dir.Unchanged, and also returns the path among the inputs.
	Unchanged(name string) (in tree.Entry, from string, ok bool)
	Written(name string) (string, bool)
	Enter(name string) (P, error)
	Close()
}

// dir is a Dir of a layer.
type dir[P layerDir[P]] struct {
	r  *Root
	at P
}

// topOf returns a function that opens the top of a layer of r.
func topOf[P layerDir[P]](r *Root, open func() (P, error)) func() (Dir, error) {
	return func() (Dir, error) {
		at, err := open()
		return dirOf(r, at, err)
	}
}

// dirOf makes a Dir of a folder that a layer has opened, unless that failed.
func dirOf[P layerDir[P]](r *Root, at P, err error) (Dir, error) {
	if err != nil {
		return nil, err
	}
	return dir[P]{r, at}, nil
}

// Unchanged implements Dir.
func (p dir[P]) Unchanged(name string) (Input, bool) {
	if tree.CheckName(name) != nil {
		return Input{}, false
	}
	in, from, ok := p.at.Unchanged(name)
	if !ok {
		return Input{}, false
	}
	if p.r.spec.OnLook != nil {
		p.r.spec.OnLook(from, tree.LookInside)
	}
	if in.Kind == File {
		p.r.tellBlob(in.Digest)
	}
	return Input{in.Kind, in.Digest, in.Executable, in.Target}, true
}

// Written implements Dir.
func (p dir[P]) Written(name string) (string, bool) {
	if tree.CheckName(name) != nil {
		return "", false
	}
	return p.at.Written(name)
}

// Enter implements Dir.
func (p dir[P]) Enter(name string) (Dir, error) {
	if err := tree.CheckName(name); err != nil {
		return nil, err
	}
	at, err := p.at.Enter(name)
	return dirOf(p.r, at, err)
}

// Close implements Dir.
func (p dir[P]) Close() { p.at.Close() }
