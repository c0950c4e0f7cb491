package vfs

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Input is what an input root has at a path.
type Input struct {
	Kind       Kind
	Digest     digest.Digest // of a file or a Directory
	Executable bool          // of a file, as it is now
	Target     string        // of a symlink
}

// Unchanged returns the input whose content is what the action left at path
// (relative, slash-separated, without "." and ".."; symlinks are not followed),
// so that its digest need not be computed. Inputs that were moved are
// recognised; of a file, attributes may have changed, and Executable says how.
// A directory is unchanged if the action wrote nothing in it or below it, nor to
// its attributes. False says only that the content must be looked at, or that
// there is none. It does not count as a read, though OnLook is told of a look
// inside, and OnBlob of a file, and may have to ask the Source for a directory that was never
// looked at.
func (r *Root) Unchanged(path string) (Input, bool) {
	in, ok := r.upper.unchanged(path)
	if ok && in.Kind == File {
		r.tellBlob(in.Digest)
	}
	return in, ok
}

// unchangedBelow is Unchanged for a root with an overlay.
func (r *Root) unchangedBelow(path string) (Input, bool) {
	names, ok := splitPath(path)
	if !ok {
		return Input{}, false
	}
	lower := r.lowerRoot()
	var found Input
	ok = r.walkUpper(names, func(name string, u upperEntry, rest []string) (ok bool) {
		switch {
		case u.kind == upperAbsent:
			lower, ok = r.lowerEntry(lower, append([]string{name}, rest...))
			found = Input{lower.Kind, lower.Digest, lower.Executable, lower.Target}
			return ok
		case u.kind == upperDir && len(rest) > 0:
			lower, _ = r.lowerBehind(lower, name, u)
			return true
		case u.kind == upperFile && u.metacopy && len(rest) == 0:
			lower, ok = r.lowerBehind(lower, name, u)
			found = Input{File, lower.Digest, u.mode&0o111 != 0, ""}
			return ok && lower.Kind == File
		}
		return false
	})
	if !ok {
		return Input{}, false
	}
	if r.spec.OnLook != nil {
		r.spec.OnLook(strings.Join(lower.path, "/"), tree.LookInside)
	}
	return found, true
}

// Written returns the path of the file in the writable layer that holds the
// whole content of the regular file at path, so that it can be moved away
// instead of copied, after the action has ended and if nobody else can have it
// open. It is false for inputs, for whatever is no regular file, and for a file
// with several links: what is moved into a store must have no second name.
func (r *Root) Written(path string) (string, bool) { return r.upper.written(path) }

// writtenAbove is Written for a root with an overlay.
func (r *Root) writtenAbove(path string) (string, bool) {
	names, ok := splitPath(path)
	if !ok {
		return "", false
	}
	ok = r.walkUpper(names, func(_ string, u upperEntry, rest []string) bool {
		if len(rest) > 0 {
			return u.kind == upperDir
		}
		return u.kind == upperFile && !u.metacopy && u.links == 1
	})
	if !ok {
		return "", false
	}
	return r.upperPath() + "/" + path, true
}

func splitPath(path string) ([]string, bool) {
	names := strings.Split(path, "/")
	for _, n := range names {
		if tree.CheckName(n) != nil {
			return nil, false
		}
	}
	return names, true
}

// upperEntry is what the writable layer has under a name, in the terms of
// overlayfs (Documentation/filesystems/overlayfs.rst in the kernel's source).
type upperEntry struct {
	kind     upperKind
	mode     uint32
	links    uint64
	opaque   bool   // of a directory: the lower one is hidden
	metacopy bool   // of a file: attributes only, the data is in the lower one
	redirect string // where the lower one is: a name, or a path from the root with a slash in front
}

type upperKind uint8

const (
	upperAbsent upperKind = iota
	upperDir
	upperFile
	upperOther // also a whiteout
)

// walkUpper visits the names of a path in the writable layer until visit
// returns false, a name is not there, or they are at an end. It goes from
// descriptor to descriptor: a path may be longer than the kernel takes at once,
// and no symlink is followed. It returns what the last visit returned.
func (r *Root) walkUpper(names []string, visit func(name string, u upperEntry, rest []string) bool) bool {
	dir, err := unix.Open(r.upperPath(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(dir) }()
	for i, name := range names {
		u, fd, err := inspect(dir, name)
		if err != nil {
			return false
		}
		if fd >= 0 {
			_ = unix.Close(dir)
			dir = fd
		}
		rest := names[i+1:]
		if !visit(name, u, rest) {
			return false
		}
		if u.kind != upperDir {
			return true
		}
	}
	return true
}

// inspect looks at name in the folder dir of the writable layer. The
// descriptor that it returns is that of a directory or file, else -1.
func inspect(dir int, name string) (u upperEntry, fd int, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return upperEntry{}, -1, nil
	}
	if err != nil {
		return upperEntry{}, -1, err
	}
	u.mode, u.links = st.Mode, uint64(st.Nlink)
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		u.kind = upperDir
		flags |= unix.O_DIRECTORY
	case unix.S_IFREG:
		u.kind = upperFile
	default:
		return upperEntry{kind: upperOther}, -1, nil
	}
	if fd, err = unix.Openat(dir, name, flags, 0); err != nil {
		return upperEntry{}, -1, err
	}
	if err := u.readMarks(fd); err != nil {
		_ = unix.Close(fd)
		return upperEntry{}, -1, err
	}
	return u, fd, nil
}

// readMarks reads the extended attributes by which overlayfs remembers things.
func (u *upperEntry) readMarks(fd int) error {
	opaque, _, err := mark(fd, "trusted.overlay.opaque")
	if err != nil {
		return err
	}
	u.opaque = opaque == "y"
	if _, u.metacopy, err = mark(fd, "trusted.overlay.metacopy"); err != nil {
		return err
	}
	u.redirect, _, err = mark(fd, "trusted.overlay.redirect")
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

// A lowerInput is an input; the zero value is none.
type lowerInput struct {
	tree.Entry
	path []string // among the inputs
}

func (r *Root) lowerRoot() lowerInput {
	return lowerInput{Entry: tree.Entry{Kind: Directory, Digest: r.spec.Digest}}
}

// lowerBehind returns the input that overlayfs puts behind the entry u, which
// is called name in a directory whose lower directory is dir, if that is one.
func (r *Root) lowerBehind(dir lowerInput, name string, u upperEntry) (lowerInput, bool) {
	switch {
	case u.opaque:
		return lowerInput{}, false
	case strings.HasPrefix(u.redirect, "/"):
		return r.lowerEntry(r.lowerRoot(), strings.Split(u.redirect[1:], "/"))
	case u.redirect != "":
		name = u.redirect
	}
	return r.lowerEntry(dir, []string{name})
}

// lowerEntry returns the input at names below e.
func (r *Root) lowerEntry(e lowerInput, names []string) (lowerInput, bool) {
	path := slices.Concat(e.path, names)
	for _, name := range names {
		if e.Kind != Directory {
			return lowerInput{}, false
		}
		d, err := r.directory(r.ctx, e.Digest)
		if err != nil {
			return lowerInput{}, false
		}
		var ok bool
		if e.Entry, ok = d.Find(name); !ok {
			return lowerInput{}, false
		}
	}
	e.path = path
	return e, true
}
