package overlay

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// Upper is the folder where overlayfs keeps what was written.
type Upper string

// Written returns the path of the file in u that holds the whole content of the regular file
// called names, one below the other. It is false for what is only in lower layers, for whatever is no
// regular file, and for a file with several links.
func (u Upper) Written(names []string) (string, bool) {
	ok := u.walk(names, func(_ string, e entry, rest []string) bool {
		if len(rest) > 0 {
			return e.kind == dirEntry
		}
		return e.kind == fileEntry && !e.metacopy && e.links == 1
	})
	if !ok {
		return "", false
	}
	return string(u) + "/" + strings.Join(names, "/"), true
}

// entry is what the writable layer has under a name, in the terms of
// overlayfs (Documentation/filesystems/overlayfs.rst in the kernel's source).
type entry struct {
	kind     entryKind
	mode     uint32
	links    uint64
	opaque   bool   // of a directory: the lower one is hidden
	metacopy bool   // of a file: attributes only, the data is in the lower one
	redirect string // where the lower one is: a name, or a path from the root with a slash in front
}

type entryKind uint8

const (
	absent entryKind = iota
	dirEntry
	fileEntry
	otherEntry // also a whiteout
)

// walk visits the names of a path in the writable layer until visit
// returns false, a name is not there, or they are at an end. It goes from
// descriptor to descriptor: a path may be longer than the kernel takes at once,
// and no symlink is followed. It returns what the last visit returned.
func (u Upper) walk(names []string, visit func(name string, e entry, rest []string) bool) bool {
	dir, err := unix.Open(string(u), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(dir) }()
	for i, name := range names {
		e, fd, err := inspect(dir, name)
		if err != nil {
			return false
		}
		if fd >= 0 {
			_ = unix.Close(dir)
			dir = fd
		}
		rest := names[i+1:]
		if !visit(name, e, rest) {
			return false
		}
		if e.kind != dirEntry {
			return true
		}
	}
	return true
}

// inspect looks at name in the folder dir of the writable layer. The
// descriptor that it returns is that of a directory or file, else -1.
func inspect(dir int, name string) (e entry, fd int, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return entry{}, -1, nil
	}
	if err != nil {
		return entry{}, -1, err
	}
	e.mode, e.links = st.Mode, uint64(st.Nlink)
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.kind = dirEntry
		flags |= unix.O_DIRECTORY
	case unix.S_IFREG:
		e.kind = fileEntry
	default:
		return entry{kind: otherEntry}, -1, nil
	}
	if fd, err = unix.Openat(dir, name, flags, 0); err != nil {
		return entry{}, -1, err
	}
	if err := e.readMarks(fd); err != nil {
		_ = unix.Close(fd)
		return entry{}, -1, err
	}
	return e, fd, nil
}

// readMarks reads the extended attributes by which overlayfs remembers things.
func (e *entry) readMarks(fd int) error {
	opaque, _, err := mark(fd, "trusted.overlay.opaque")
	if err != nil {
		return err
	}
	e.opaque = opaque == "y"
	if _, e.metacopy, err = mark(fd, "trusted.overlay.metacopy"); err != nil {
		return err
	}
	e.redirect, _, err = mark(fd, "trusted.overlay.redirect")
	return err
}

func mark(fd int, name string) (value string, ok bool, err error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Fgetxattr(fd, name, buf)
	if errors.Is(err, unix.ENODATA) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return string(buf[:n]), true, nil
}
