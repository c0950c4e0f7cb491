package copied

import (
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// A Dir is an open folder of a root. It goes from descriptor to descriptor and follows no symlink.
// It belongs to one goroutine, which closes it.
type Dir struct {
	tree *Tree
	fd   int
	in   *entry // the input directory that was at its path; nil if there was none
}

// Top opens the topmost folder.
func (r *Root) Top() (*Dir, error) {
	fd, err := unix.Open(r.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Dir{r.tree, fd, &r.tree.root}, nil
}

// Enter opens the subfolder with that name.
func (p *Dir) Enter(name string) (*Dir, error) {
	fd, err := unix.Openat(p.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	next := &Dir{tree: p.tree, fd: fd}
	if e := p.find(name); e != nil && e.Kind == tree.Dir {
		next.in = e
	}
	return next, nil
}

// Close closes the folder. It may be called once.
func (p *Dir) Close() { _ = unix.Close(p.fd) }

// find returns the input that was at this name; nil if there was none.
func (p *Dir) find(name string) *entry {
	if p.in == nil {
		return nil
	}
	in := p.tree.in(p.in)
	i, ok := slices.BinarySearchFunc(in, name, func(e entry, name string) int { return strings.Compare(e.Name, name) })
	if !ok {
		return nil
	}
	return &in[i]
}

// Unchanged returns the input that is still at this name, and its path. It compares contents, as the
// action could have changed them. The attributes of a file may have changed, and Executable returns
// them; a directory and everything below it has the same attributes, too. It does not recognize
// inputs that were moved.
func (p *Dir) Unchanged(name string) (in tree.Entry, from string, ok bool) {
	e := p.find(name)
	var st unix.Stat_t
	if e == nil || unix.Fstatat(p.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return tree.Entry{}, "", false
	}
	if p.same(name, &st, e) {
		return e.Entry, e.path, true
	}
	if e.Kind != tree.File || !p.holds(name, &st, e) {
		return tree.Entry{}, "", false
	}
	in = e.Entry
	in.Executable = st.Mode&0o111 != 0
	return in, e.path, true
}

// same reports whether an entry is e, with all its attributes and all that is below it.
func (p *Dir) same(name string, st *unix.Stat_t, e *entry) bool {
	if st.Mtim.Sec != e.MTime.Unix() || st.Mtim.Nsec != 0 || e.Kind != tree.Symlink && st.Mode&0o7777 != e.Perm {
		return false
	}
	switch e.Kind {
	case tree.File:
		return p.holds(name, st, e)
	case tree.Symlink:
		return st.Mode&unix.S_IFMT == unix.S_IFLNK && folder.LeadsTo(p.fd, name, e.Target)
	}
	next, err := p.Enter(name)
	if err != nil {
		return false
	}
	defer next.Close()
	return next.sameInside()
}

// sameInside reports whether the folder has all its inputs, and nothing else.
func (p *Dir) sameInside() bool {
	left := p.in.count
	same := true
	err := folder.List(p.fd, func(name string) (more bool) {
		e := p.find(name)
		var st unix.Stat_t
		left--
		same = e != nil && unix.Fstatat(p.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && p.same(name, &st, e)
		return same
	})
	return err == nil && same && left == 0
}

// holds reports whether a regular file has the content of e.
func (p *Dir) holds(name string, st *unix.Stat_t, e *entry) bool {
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != e.Digest.SizeBytes() {
		return false
	}
	fd, err := unix.Openat(p.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, st.Size+1)) // one more, to see the end
	return err == nil && digest.Of(e.Digest.Function(), content) == e.Digest
}

// Written returns a path, valid until Close, of a regular file with one name. The action may have
// written to each.
func (p *Dir) Written(name string) (string, bool) { return folder.FileOfOneName(p.fd, name) }
