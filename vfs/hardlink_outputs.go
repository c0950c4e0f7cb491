package vfs

import (
	"golang.org/x/sys/unix"
)

// bareLayer is a folder of hard links that the action sees as it is: what it
// makes, renames and removes is beside the inputs, and what it writes into one,
// if it may, reaches all who share it. intact finds that out.
type bareLayer struct{ *linkLayer }

func (l bareLayer) path() string { return l.base }
func (l bareLayer) show() error  { return nil }
func (l bareLayer) hide() error  { return nil }

func (l bareLayer) scratch() (string, bool) { return l.base, true }

// unchanged knows files by their inode, so also those that were moved, and
// symlinks by their place. Of directories it knows nothing.
func (l bareLayer) unchanged(path string) (Input, bool) {
	st, names, ok := l.stat(path)
	if !ok {
		return Input{}, false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		at, ok := l.byIno[st.Ino]
		if !ok || inodeOf(&st) != at.as {
			return Input{}, false
		}
		return Input{File, at.key.digest, st.Mode&0o111 != 0, ""}, true
	case unix.S_IFLNK:
		e, ok := l.r.lowerEntry(l.r.lowerRoot(), names)
		if !ok || e.Kind != Symlink || !l.leadsTo(path, e.Target) {
			return Input{}, false
		}
		return Input{Kind: Symlink, Target: e.Target}, true
	}
	return Input{}, false
}

// written is what has one name: an input has another one in the linkCache.
func (l bareLayer) written(path string) (string, bool) {
	st, _, ok := l.stat(path)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return "", false
	}
	return l.base + "/" + path, true
}

// stat looks at path and follows no symlink on the way, from descriptor to
// descriptor: the path may be longer than the kernel takes at once.
func (l bareLayer) stat(path string) (st unix.Stat_t, names []string, ok bool) {
	names, ok = splitPath(path)
	if !ok {
		return st, nil, false
	}
	dir, err := unix.Open(l.base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, nil, false
	}
	defer func() { _ = unix.Close(dir) }()
	last := len(names) - 1
	for _, name := range names[:last] {
		next, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return st, nil, false
		}
		_ = unix.Close(dir)
		dir = next
	}
	err = unix.Fstatat(dir, names[last], &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, names, err == nil
}

// leadsTo reports whether the symlink at path, whose parents stat has looked at,
// has that target.
func (l bareLayer) leadsTo(path, target string) bool {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(l.base+"/"+path, buf)
	return err == nil && string(buf[:n]) == target
}
