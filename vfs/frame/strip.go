package frame

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

const (
	// maxEntries limits what is looked at in a frame: more takes a while to remove, and that can be
	// stopped only in the trash.
	maxEntries = 1000
	// maxFolders limits the folders of a frame.
	maxFolders = 256
	// maxDepth limits how many levels they are below the top, as each takes a descriptor.
	maxDepth = 32
	// maxPath limits their paths, by which Fit finds them.
	maxPath = unix.PathMax - 1
)

// Strip removes everything from f but the folders of the last Fit that are as new ones. It removes a
// folder that is not empty by discard, which takes it away at once. No process may use f any more.
// If Strip returns false, all that is left to do with f is to remove it.
func (f *Frame) Strip(discard func(at string) error) bool {
	fd, err := openFolder(unix.AT_FDCWD, f.Path())
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	s := stripping{frame: f, discard: discard}
	if !s.strip(fd, "") || s.seen > maxEntries {
		return false
	}
	f.inside = s.kept
	return f.top.Renew() == nil
}

type stripping struct {
	frame   *Frame
	discard func(at string) error
	seen    int // entries
	kept    []string
}

// An entry is one of a folder.
type entry struct {
	name string
	kind byte // unix.DT_DIR, …, which not every file system knows
}

// strip strips the open folder dir, whose path is a prefix of those in it. It returns false if the
// folder is not as a new one, or cannot be stripped.
func (s *stripping) strip(dir int, prefix string) bool {
	if !s.frame.isNew(dir) {
		return false
	}
	var entries []entry // all, as removals could make the listing miss some
	err := folder.Entries(dir, func(name string, kind byte) (more bool) {
		entries = append(entries, entry{name, kind})
		s.seen++
		return s.seen <= maxEntries
	})
	if err != nil || s.seen > maxEntries {
		return false
	}
	for _, e := range entries {
		if !s.keep(dir, e, prefix+e.name) && !s.remove(dir, e) {
			return false
		}
	}
	return true
}

// keep strips an entry of the folder dir, if it is a folder that may be kept.
func (s *stripping) keep(dir int, e entry, at string) bool {
	if e.kind != unix.DT_DIR || !s.frame.wanted.Has(at) || len(s.kept) == maxFolders || len(at) > maxPath ||
		strings.Count(at, "/") == maxDepth {
		return false
	}
	fd, err := openFolder(dir, e.name)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	before := len(s.kept)
	s.kept = append(s.kept, at)
	if s.strip(fd, at+"/") {
		return true
	}
	s.kept = s.kept[:before]
	return false
}

// remove removes an entry of the folder dir.
func (s *stripping) remove(dir int, e entry) bool {
	var err error
	if e.kind == unix.DT_DIR {
		err = unix.Unlinkat(dir, e.name, unix.AT_REMOVEDIR)
	} else {
		err = unix.Unlinkat(dir, e.name, 0)
	}
	if err == unix.ENOTEMPTY || err == unix.EEXIST || err == unix.EISDIR {
		err = s.discard(fmt.Sprintf("/proc/self/fd/%d/%s", dir, e.name))
	}
	return err == nil
}
