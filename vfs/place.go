package vfs

import "golang.org/x/sys/unix"

// A Place is a folder of a root from which somebody looks at what is in it. It belongs to one goroutine, which closes
// it before the root.
type Place interface {
	// Unchanged is Root.Unchanged of what the folder has by this name.
	Unchanged(name string) (Input, bool)
	// Written is Root.Written of what the folder has by this name. The path that it returns is good until Close.
	Written(name string) (string, bool)
	// Enter opens the folder that this one has by this name.
	Enter(name string) (Place, error)
	Close()
}

// Enter opens the folder at path (relative, slash-separated).
func (r *Root) Enter(path string) (Place, error) {
	if _, ok := splitPath(path); !ok && path != "." {
		return nil, unix.EINVAL
	}
	return place{r, path}, nil
}

// A place goes by its path: each look costs as much as the folder is deep in the writable layer.
type place struct {
	r    *Root
	path string
}

func (p place) below(name string) string {
	if p.path == "." {
		return name
	}
	return p.path + "/" + name
}

// Unchanged implements Place.
func (p place) Unchanged(name string) (Input, bool) { return p.r.Unchanged(p.below(name)) }

// Written implements Place.
func (p place) Written(name string) (string, bool) { return p.r.Written(p.below(name)) }

// Enter implements Place.
func (p place) Enter(name string) (Place, error) { return p.r.Enter(p.below(name)) }

// Close implements Place.
func (p place) Close() {}
