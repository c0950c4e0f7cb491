package tree

import (
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// Kind is the type of a directory's entry.
type Kind uint8

// The kinds of entries.
const (
	Dir Kind = iota + 1
	File
	Symlink
)

// String returns the name of the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Dir:
		return "directory"
	case File:
		return "file"
	case Symlink:
		return "symlink"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// DefaultMTime is the time of every entry without one, in seconds since 1970: 2000-01-01 00:00 UTC.
const DefaultMTime = 946684800

// The permissions of entries that have none of their own.
const (
	dirPerm        = 0o755
	filePerm       = 0o444
	executablePerm = 0o555
	symlinkPerm    = 0o777
)

// Entry is one entry of a Directory. Its strings share the memory of the Directory: clone one to
// keep it for long.
type Entry struct {
	Name       string
	Kind       Kind
	Digest     digest.Digest // of a file's bytes or of a Directory; zero for a symlink
	Executable bool          // of a file
	Target     string        // of a symlink
	// Perm has the nine permission bits: node_properties.unix_mode of a file, or else the usual
	// ones of its kind and Executable.
	Perm uint32
	// MTime is node_properties.mtime of a file or symlink if that is valid, else DefaultMTime.
	MTime time.Time
}

// entry converts a node that was checked before.
func (n *node) entry(fn digest.Function, kind Kind) Entry {
	e := Entry{Name: text(n.name), Kind: kind, MTime: n.mtime()}
	switch kind {
	case Dir:
		e.Perm = dirPerm
	case Symlink:
		e.Perm, e.Target = symlinkPerm, text(n.target)
		return e
	case File:
		e.Perm, e.Executable = filePerm, n.executable
		if e.Executable {
			e.Perm = executablePerm
		}
		if n.has&withMode != 0 {
			e.Perm = n.mode & 0o777
		}
	}
	e.Digest, _ = n.digest(fn)
	return e
}

// mtime has the bounds of google.protobuf.Timestamp: the years 1 to 9999.
func (n *node) mtime() time.Time {
	const first, last = -62135596800, 253402300799
	if n.seconds < first || n.seconds > last || n.nanos < 0 || n.nanos >= 1e9 || n.has&withMTime == 0 {
		return time.Unix(DefaultMTime, 0)
	}
	return time.Unix(n.seconds, int64(n.nanos))
}
