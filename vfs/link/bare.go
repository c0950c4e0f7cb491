package link

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Bare is a layer that the action sees as it is: what it
// makes, renames and removes is beside the inputs, and what it writes into one,
// if it may, reaches all who share it. Intact finds that out.
type Bare struct {
	*Layer
	directory func(digest.Digest) (*tree.Directory, error)
}

// NewBare returns the layer l as what the action sees. It asks for directories once more, when it is
// to know whether a symlink is an input.
func NewBare(l *Layer, directory func(digest.Digest) (*tree.Directory, error)) Bare {
	return Bare{l, directory}
}

// Path is where it is.
func (l Bare) Path() string { return l.own.base }

// Intact returns an error that wraps ErrInputChanged and names the inputs that are not what was linked.
func (l Bare) Intact() error {
	var changed []string
	for _, at := range l.own.byIno {
		if !at.intact() {
			l.store.copies.spoil(at.sharedFile)
			changed = append(changed, at.path)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	if len(changed) > maxNamed {
		changed = append(changed[:maxNamed], "and more")
	}
	return fmt.Errorf("%w, by this command or another that shares it (inputs are hard links here, "+
		"without an overlayfs to keep them apart): %s", ErrInputChanged, strings.Join(changed, ", "))
}

// Unchanged knows files by their inode, so also those that were moved, and
// symlinks by their place. Of directories it knows nothing.
func (l Bare) Unchanged(names []string) (in tree.Entry, from string, ok bool) {
	st, ok := l.stat(names)
	if !ok {
		return in, "", false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		at, ok := l.own.byIno[st.Ino]
		if !ok || inodeOf(&st) != at.as {
			return in, "", false
		}
		return tree.Entry{Kind: tree.File, Digest: at.key.digest, Executable: st.Mode&0o111 != 0}, at.path, true
	case unix.S_IFLNK:
		e, ok := l.symlink(names)
		path := strings.Join(names, "/")
		return e, path, ok && l.leadsTo(path, e.Target)
	}
	return in, "", false
}

// symlink returns the input of that path if it is a symlink.
func (l Bare) symlink(names []string) (e tree.Entry, ok bool) {
	e = tree.Entry{Kind: tree.Dir, Digest: l.root}
	for _, name := range names {
		if e.Kind != tree.Dir {
			return e, false
		}
		d, err := l.directory(e.Digest)
		if err != nil {
			return e, false
		}
		if e, ok = d.Find(name); !ok {
			return e, false
		}
	}
	return e, e.Kind == tree.Symlink
}

// Written is what has one name: an input has another one in the Store.
func (l Bare) Written(names []string) (string, bool) {
	st, ok := l.stat(names)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return "", false
	}
	return l.own.base + "/" + strings.Join(names, "/"), true
}

// stat looks at a path and follows no symlink on the way, from descriptor to
// descriptor: the path may be longer than the kernel takes at once.
func (l Bare) stat(names []string) (st unix.Stat_t, ok bool) {
	dir, err := unix.Open(l.own.base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, false
	}
	defer func() { _ = unix.Close(dir) }()
	last := len(names) - 1
	for _, name := range names[:last] {
		next, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return st, false
		}
		_ = unix.Close(dir)
		dir = next
	}
	err = unix.Fstatat(dir, names[last], &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err == nil
}

// leadsTo reports whether the symlink at path, whose parents stat has looked at,
// has that target.
func (l Bare) leadsTo(path, target string) bool {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(l.own.base+"/"+path, buf)
	return err == nil && string(buf[:n]) == target
}
