package overlay

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Upper is the folder of overlayfs for written files.
type Upper string

// entry is the state of a name in the writable layer, in the terms of overlayfs
// (Documentation/filesystems/overlayfs.rst in the kernel's source).
type entry struct {
	kind     entryKind
	mode     uint32
	links    uint64
	opaque   bool   // of a directory: the lower one is hidden
	metacopy bool   // of a file: attributes only, the data is in the lower one
	copied   bool   // of a file: its data was in one below, which has a file handle
	redirect string // where the lower one is: a name, or a path from the root with a slash in front
}

type entryKind uint8

const (
	absent entryKind = iota
	dirEntry
	fileEntry
	otherEntry // also a whiteout
)

// inspect reads name in the folder dir of the writable layer. The returned descriptor is that of a
// directory or file, otherwise noFolder.
func inspect(dir int, name string) (e entry, fd int, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return entry{}, noFolder, nil
	}
	if err != nil {
		return entry{}, noFolder, err
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
		return entry{kind: otherEntry}, noFolder, nil
	}
	if fd, err = unix.Openat(dir, name, flags, 0); err != nil {
		return entry{}, noFolder, err
	}
	if err := e.readMarks(fd); err != nil {
		_ = unix.Close(fd)
		return entry{}, noFolder, err
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
	origin, _, err := mark(fd, "trusted.overlay.origin")
	if err != nil {
		return err
	}
	e.copied = origin != "" && !e.metacopy
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
