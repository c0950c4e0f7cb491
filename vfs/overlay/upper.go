package overlay

import (
	"bytes"
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
	fileEntry
	otherEntry // such as a directory or a whiteout
)

// openFolder opens the subfolder called name of the folder dir of the writable layer. It is noFolder
// if nothing there has that name.
func openFolder(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return noFolder, nil
	case err != nil:
		return noFolder, err
	}
	return fd, nil
}

// lookAt reads name in the folder dir of the writable layer.
func lookAt(dir int, name string) (entry, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return entry{}, nil
	case err != nil:
		return entry{}, err
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return entry{kind: otherEntry}, nil
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return entry{}, err
	}
	defer func() { _ = unix.Close(fd) }()
	e := entry{kind: fileEntry, mode: st.Mode, links: uint64(st.Nlink)}
	return e, e.readMarks(fd)
}

// readMarks reads the extended attributes by which overlayfs remembers things. Most files have none,
// which one list shows: whoever may not list them may not read them either.
func (e *entry) readMarks(fd int) (err error) {
	var names [512]byte
	n, tooMany := unix.Flistxattr(fd, names[:])
	mark := func(name string) (value string, ok bool) {
		if err != nil || tooMany == nil && !bytes.Contains(names[:n], []byte(name)) {
			return "", false
		}
		value, ok, err = attribute(fd, name)
		return value, ok
	}
	opaque, _ := mark("trusted.overlay.opaque")
	origin, _ := mark("trusted.overlay.origin")
	_, e.metacopy = mark("trusted.overlay.metacopy")
	e.redirect, _ = mark("trusted.overlay.redirect")
	e.opaque, e.copied = opaque == "y", origin != "" && !e.metacopy
	return err
}

// attribute returns an extended attribute of an open file, if it has that.
func attribute(fd int, name string) (value string, ok bool, err error) {
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
