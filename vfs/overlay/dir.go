package overlay

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// A Dir is an open folder in the view of the action. Its methods cost the same at any depth: they
// go from descriptor to descriptor, a path may exceed the kernel's limit, and no symlink is
// followed. It belongs to one goroutine, which closes it.
type Dir struct {
	dir    int    // in the writable layer; noFolder: it does not exist there, everything is unchanged
	lower  input  // the inputs' folder behind it; zero if there is none
	inputs Inputs // the inputs of this folder
	// watched: opens of an input's file are detected, see Stack.Identified.
	watched bool
}

const noFolder = -1

// Top opens the topmost folder.
func (l *Layer) Top() (*Dir, error) {
	p, err := l.upper.Top()
	if err == nil {
		p.inputs, p.lower, p.watched = l.inputs, l.inputs.top(), l.watched
	}
	return p, err
}

// Top opens the topmost folder of the writable layer, without inputs behind it.
func (u Upper) Top() (*Dir, error) {
	dir, err := unix.Open(string(u), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{dir: dir}, nil
}

// Enter opens the subfolder with that name.
func (p *Dir) Enter(name string) (*Dir, error) {
	next := &Dir{dir: noFolder, inputs: p.inputs, watched: p.watched}
	if p.dir != noFolder {
		var err error
		if next.dir, err = openFolder(p.dir, name); err != nil {
			return nil, err
		}
	}
	if next.dir == noFolder {
		var ok bool
		if next.lower, ok = p.inputs.find(p.lower, []string{name}); ok && next.lower.Kind == tree.Dir {
			return next, nil
		}
		return nil, unix.ENOENT
	}
	var e entry
	if err := e.readMarks(next.dir); err != nil {
		next.Close()
		return nil, err
	}
	next.lower, _ = p.inputs.behind(p.lower, name, e)
	return next, nil
}

// Close closes the folder. It may be called again.
func (p *Dir) Close() {
	if p.dir != noFolder {
		_ = unix.Close(p.dir)
		p.dir = noFolder
	}
}

// Unchanged returns the input with the content of the entry with that name, and its path among the
// inputs, if this is certain without reading bytes. It recognizes moved inputs; the attributes of a
// file may have changed, and Executable returns them. A directory is unchanged if nothing was
// written in it or below it, nor to its attributes. False only means that the content must be read,
// or that there is none.
func (p *Dir) Unchanged(name string) (found tree.Entry, from string, ok bool) {
	e := entry{kind: absent}
	if p.dir != noFolder {
		var err error
		if e, err = lookAt(p.dir, name); err != nil {
			return tree.Entry{}, "", false
		}
	}
	var lower input
	switch {
	case e.kind == absent:
		lower, ok = p.inputs.find(p.lower, []string{name})
	case e.kind == fileEntry && e.metacopy:
		lower, ok = p.inputs.behind(p.lower, name, e)
		lower.Executable, ok = e.mode&0o111 != 0, ok && lower.Kind == tree.File
	}
	if !ok {
		return tree.Entry{}, "", false
	}
	return lower.Entry, strings.Join(lower.path, "/"), true
}

// Written returns a path, valid until Close, of the file in the writable layer with the whole
// content of the regular file with that name. It is false for files only in lower layers, for other
// types of files, and for a file with several links. If opens of inputs are detected, it is also
// false for a file whose content overlayfs has copied: truncate(2) copies without an open, and
// opens of the copy in the overlay are detected.
func (p *Dir) Written(name string) (string, bool) {
	if p.dir == noFolder {
		return "", false
	}
	e, err := lookAt(p.dir, name)
	if err != nil || e.kind != fileEntry || e.metacopy || p.watched && e.copied || e.links != 1 {
		return "", false
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir, name), true
}
