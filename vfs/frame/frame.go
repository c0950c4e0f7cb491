package frame

import (
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Mode has the permission bits of the folders of input roots.
const Mode = 0o755

// Paths are those of folders below a root, each after that of the folder that it is in.
type Paths struct {
	list []string
	set  map[string]struct{}
}

// PathsOf returns the paths of list for which Add allows it.
func PathsOf(list []string) *Paths {
	p := &Paths{}
	for _, at := range list {
		p.Add(at)
	}
	return p
}

// Has reports whether p has a path.
func (p *Paths) Has(at string) bool {
	_, ok := p.set[at]
	return ok
}

// Add adds a clean path, unless the folder that it is in is missing.
func (p *Paths) Add(at string) {
	if in := path.Dir(at); in != "." && !p.Has(in) || p.Has(at) {
		return
	}
	if p.set == nil {
		p.set = map[string]struct{}{}
	}
	p.set[at] = struct{}{}
	p.list = append(p.list, at)
}

// A Frame is a folder of an action, with folders in it.
type Frame struct {
	top    *folder.Folder
	mode   uint32
	traits traits   // of a new folder there
	inside []string // the folders in it, each after the one that it is in
	wanted *Paths   // by the root that has it now, or had it last
}

// Make makes a frame without folders. All its folders have these permission bits and that owner. There
// must be nothing at the path.
func Make(at string, mode uint32, owner folder.Owner) (*Frame, error) {
	top, err := folder.Make(at, mode, owner)
	if err != nil {
		return nil, err
	}
	f := &Frame{top: top, mode: mode, wanted: &Paths{}}
	fd, err := openFolder(unix.AT_FDCWD, at)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	f.traits, err = traitsOf(fd)
	return f, err
}

// Path returns the path of the topmost folder.
func (f *Frame) Path() string { return f.top.Path() }

// Owner returns the owner of all folders.
func (f *Frame) Owner() folder.Owner { return f.top.Owner() }

// Has reports whether f has a folder at this path.
func (f *Frame) Has(at string) bool { return slices.Contains(f.inside, at) }

// Match returns how many folders Fit would find, less those that it would not.
func (f *Frame) Match(wanted *Paths) (n int) {
	for _, at := range f.inside {
		if wanted.Has(at) {
			n++
		} else {
			n--
		}
	}
	return n
}

// Fit makes sure that all folders of f are wanted: it renames others, or removes them. It makes none.
func (f *Frame) Fit(wanted *Paths) error {
	f.wanted = wanted
	if f.fits() {
		return nil
	}
	top, err := openFolder(unix.AT_FDCWD, f.Path())
	if err != nil {
		return &os.PathError{Op: "open", Path: f.Path(), Err: err}
	}
	defer func() { _ = unix.Close(top) }()
	if err := f.rename(top); err != nil {
		return err
	}
	for _, at := range slices.Backward(f.inside) {
		if wanted.Has(at) {
			continue
		}
		if err := unix.Unlinkat(top, at, unix.AT_REMOVEDIR); err != nil {
			return &os.PathError{Op: "remove", Path: at, Err: err}
		}
	}
	f.inside = slices.DeleteFunc(f.inside, func(at string) bool { return !wanted.Has(at) })
	return f.top.Renew()
}

// fits reports whether all folders are wanted.
func (f *Frame) fits() bool {
	return !slices.ContainsFunc(f.inside, func(at string) bool { return !f.wanted.Has(at) })
}

// rename gives folders that are not wanted the names of missing ones beside them, which costs a file
// system much less than to remove and make one.
func (f *Frame) rename(top int) error {
	for _, at := range f.wanted.list {
		if f.Has(at) {
			continue
		}
		in := path.Dir(at)
		i := slices.IndexFunc(f.inside, func(other string) bool { return path.Dir(other) == in && !f.wanted.Has(other) })
		if i < 0 {
			continue
		}
		from := f.inside[i]
		if err := unix.Renameat2(top, from, top, at, unix.RENAME_NOREPLACE); err != nil {
			return &os.LinkError{Op: "rename", Old: from, New: at, Err: err}
		}
		for j, other := range f.inside {
			if below, ok := strings.CutPrefix(other+"/", from+"/"); ok {
				f.inside[j] = path.Join(at, below)
			}
		}
	}
	return nil
}

// Untouched reports whether f is as Make made it. No process may use it any more.
func (f *Frame) Untouched() bool { return len(f.inside) == 0 && f.top.Untouched() }

// openFolder opens a folder, which is no symlink.
func openFolder(dir int, name string) (int, error) {
	return eintr.Ignore(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}
