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

// newMode has the permission bits of all folders.
const newMode = 0o755

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

// A Frame is the folder of an input root, with folders in it.
type Frame struct {
	top    *folder.Folder
	traits traits   // of a new folder there
	inside []string // the folders in it, each after the one that it is in
	wanted *Paths   // by the root that has it now, or had it last
	// numbered: an action can set the generations of folders.
	numbered bool
}

// Make makes a frame without folders for that owner. There must be nothing at the path.
func Make(at string, owner folder.Owner) (*Frame, error) {
	top, err := folder.Make(at, newMode, owner)
	if err != nil {
		return nil, err
	}
	f := &Frame{top: top, wanted: &Paths{}}
	fd, err := openFolder(unix.AT_FDCWD, at)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: at, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	f.numbered = setGeneration(fd) == nil
	if f.traits, err = traitsOf(fd); err == nil {
		err = top.Renew()
	}
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
// After an error f cannot be used.
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
	f.rename(top)
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
// system much less than to remove and make one. Where it cannot, the folder is left to be removed.
func (f *Frame) rename(top int) {
	others := f.others()
	for _, at := range f.wanted.list {
		beside := others[path.Dir(at)]
		if len(beside) == 0 || f.Has(at) {
			continue
		}
		from := beside[0]
		if unix.Renameat2(top, from, top, at, unix.RENAME_NOREPLACE) != nil {
			continue // the name may be too long, or the file system cannot do it
		}
		for j, other := range f.inside {
			if below, ok := strings.CutPrefix(other+"/", from+"/"); ok {
				f.inside[j] = path.Join(at, below)
			}
		}
		others = f.others()
	}
}

// others returns the folders that are not wanted, by the one that each is in.
func (f *Frame) others() map[string][]string {
	all := map[string][]string{}
	for _, at := range f.inside {
		if !f.wanted.Has(at) {
			all[path.Dir(at)] = append(all[path.Dir(at)], at)
		}
	}
	return all
}

// Untouched reports whether f is as Make made it. No process may use it any more.
func (f *Frame) Untouched() bool { return len(f.inside) == 0 && f.top.Untouched() }

// openFolder opens a folder, which is no symlink.
func openFolder(dir int, name string) (int, error) {
	return eintr.Ignore(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}
