package vfs

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// bareLayer is a folder of hard links that the action sees as it is: what it
// makes, renames and removes is beside the inputs, and what it writes into one,
// if it may, reaches all who share it. intact finds that out.
type bareLayer struct{ *linkLayer }

func (l bareLayer) Path() string { return l.base }
func (l bareLayer) show() error  { return nil }
func (l bareLayer) hide() error  { return nil }

func (l bareLayer) scratch() (string, bool) { return l.base, true }

// Unchanged knows files by their inode, so also those that were moved, and
// symlinks by their place. Of directories it knows nothing.
func (l bareLayer) Unchanged(names []string) (in tree.Entry, from string, ok bool) {
	st, ok := l.stat(names)
	if !ok {
		return in, "", false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		at, ok := l.byIno[st.Ino]
		if !ok || inodeOf(&st) != at.as {
			return in, "", false
		}
		return tree.Entry{Kind: File, Digest: at.key.digest, Executable: st.Mode&0o111 != 0}, at.path, true
	case unix.S_IFLNK:
		e, ok := l.symlink(names)
		path := strings.Join(names, "/")
		return e, path, ok && l.leadsTo(path, e.Target)
	}
	return in, "", false
}

// symlink returns the input of that path if it is a symlink.
func (l bareLayer) symlink(names []string) (e tree.Entry, ok bool) {
	e = tree.Entry{Kind: Directory, Digest: l.r.spec.Digest}
	for _, name := range names {
		if e.Kind != Directory {
			return e, false
		}
		d, err := l.r.directory(l.r.ctx, e.Digest)
		if err != nil {
			return e, false
		}
		if e, ok = d.Find(name); !ok {
			return e, false
		}
	}
	return e, e.Kind == Symlink
}

// Written is what has one name: an input has another one in the linkCache.
func (l bareLayer) Written(names []string) (string, bool) {
	st, ok := l.stat(names)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return "", false
	}
	return l.base + "/" + strings.Join(names, "/"), true
}

// stat looks at a path and follows no symlink on the way, from descriptor to
// descriptor: the path may be longer than the kernel takes at once.
func (l bareLayer) stat(names []string) (st unix.Stat_t, ok bool) {
	dir, err := unix.Open(l.base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
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
func (l bareLayer) leadsTo(path, target string) bool {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(l.base+"/"+path, buf)
	return err == nil && string(buf[:n]) == target
}
