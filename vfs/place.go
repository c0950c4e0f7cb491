package vfs

import (
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// A Place is a folder of a root that somebody holds open. What is looked at from there costs the same
// however deep it lies, where [Root.Unchanged] and [Root.Written] go the way from the top each time.
// It belongs to one goroutine, which closes it before the root.
type Place interface {
	// Unchanged is Root.Unchanged of what the folder has by this name.
	Unchanged(name string) (Input, bool)
	// Written is Root.Written of what the folder has by this name. The path that it returns is good until Close.
	Written(name string) (string, bool)
	// Enter opens the folder that this one has by this name. It follows no symlink.
	Enter(name string) (Place, error)
	Close()
}

// Enter opens the folder at path (relative, slash-separated, "." for the root). It follows no symlink.
func (r *Root) Enter(path string) (Place, error) {
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
func (r *Root) enter(names []string) (Place, error) {
	p, err := r.top()
	for _, name := range names {
		if err != nil {
			return nil, err
		}
		var next Place
		next, err = p.Enter(name)
		p.Close()
		p = next
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// layerPlace is a folder that a layer holds open, of the type P.
type layerPlace[P any] interface {
	// Unchanged is Place.Unchanged, and also returns the path among the inputs.
	Unchanged(name string) (in tree.Entry, from string, ok bool)
	Written(name string) (string, bool)
	Enter(name string) (P, error)
	Close()
}

// place is a Place of a layer.
type place[P layerPlace[P]] struct {
	r  *Root
	at P
}

// topOf returns a function that opens the top of a layer of r.
func topOf[P layerPlace[P]](r *Root, open func() (P, error)) func() (Place, error) {
	return func() (Place, error) {
		at, err := open()
		return placeOf(r, at, err)
	}
}

// placeOf makes a Place of what a layer has opened, unless that failed.
func placeOf[P layerPlace[P]](r *Root, at P, err error) (Place, error) {
	if err != nil {
		return nil, err
	}
	return place[P]{r, at}, nil
}

// Unchanged implements Place.
func (p place[P]) Unchanged(name string) (Input, bool) {
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

// Written implements Place.
func (p place[P]) Written(name string) (string, bool) {
	if tree.CheckName(name) != nil {
		return "", false
	}
	return p.at.Written(name)
}

// Enter implements Place.
func (p place[P]) Enter(name string) (Place, error) {
	if err := tree.CheckName(name); err != nil {
		return nil, err
	}
	at, err := p.at.Enter(name)
	return placeOf(p.r, at, err)
}

// Close implements Place.
func (p place[P]) Close() { p.at.Close() }
