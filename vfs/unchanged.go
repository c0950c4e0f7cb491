package vfs

import (
	"math"
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Input is the entry of an input root at a path.
type Input struct {
	Kind       Kind
	Digest     digest.Digest // of a file or a Directory
	Executable bool          // of a file, as it is now
	Target     string        // of a symlink
}

// Unchanged returns the input whose content is now at path (relative, slash-separated, without "."
// and ".."; symlinks are not followed), so that its digest need not be computed. It recognizes
// moved inputs; the attributes of a file may have changed, and Executable has the new one. A
// directory is unchanged if the action wrote nothing in it or below it, nor to its attributes.
// False only means that the content must be read, or that there is none. It does not count as a
// read, but OnLook learns of a look inside, and OnBlob of a file, and it may have to ask the Source
// for a directory that was never read.
func (r *Root) Unchanged(path string) (in Input, ok bool) {
	ok = r.fromFolder(path, func(p Dir, name string) bool {
		in, ok = p.Unchanged(name)
		return ok
	})
	return in, ok
}

// Written returns the path of the file in the writable layer that holds the whole content of the
// regular file at path, so that it can be moved instead of copied, after the action has ended and
// if no process can have it open. It is false for inputs, for entries that are no regular files,
// and for a file with several links: a file that is moved into a store must have no second name.
// With metadata images it is also false for inputs that were written to: a copy from Path is
// detected, and OnBlob learns of the original.
func (r *Root) Written(path string) (string, bool) {
	ok := r.fromFolder(path, func(p Dir, name string) bool {
		_, ok := p.Written(name)
		return ok
	})
	if !ok {
		return "", false
	}
	return r.upper.Base() + "/" + path, true
}

// fromFolder calls f with the folder that path is in, and the name it has there. It is false if
// there is none.
func (r *Root) fromFolder(path string, f func(p Dir, name string) bool) bool {
	names, ok := splitPath(path)
	if !ok {
		return false
	}
	last := len(names) - 1
	p, err := r.enter(names[:last])
	if err != nil {
		return false
	}
	defer p.Close()
	return f(p, names[last])
}

// WrittenBytes returns the total size of the files that the action has made or changed, on the disk
// or, with Options.UpperMemory, in memory: each file and folder counts as at least 4 KiB. Beyond
// most it stops counting. It reads each file's attributes, while the action runs; files that are
// removed meanwhile do not count. It misses files without a name and, with hard links without
// overlayfs, those with several names.
func (r *Root) WrittenBytes(most int64) int64 {
	if r.over != nil {
		return folder.Usage(r.Writable(), most)
	}
	if c := r.copies(); c != nil {
		var all int64
		c.Aside(func() { all = folder.Usage(r.Writable(), most+min(c.Bytes(), math.MaxInt64-most)) })
		return max(0, all-c.Bytes())
	}
	// Inputs, if there are any, are in it, too, with more than one link.
	return folder.UsageOf(r.Writable(), most, func(nlink uint64) bool { return r.links == nil || nlink == 1 })
}

// Writable returns a folder on the file system that the action writes to.
func (r *Root) Writable() string {
	if r.over != nil {
		return string(r.over.Upper())
	}
	return r.Path()
}

// InMemory reports whether the action writes to memory.
func (r *Root) InMemory() bool { return r.writable.state == folderMounted }

// MemoryLeft returns how much of Options.UpperMemory is left, and whether it is nearly used up:
// then files of the action may be truncated, even if it succeeds. It must not be called after
// Close.
func (r *Root) MemoryLeft() (bytes, files int64, full bool) { return r.writable.left() }

func splitPath(path string) ([]string, bool) {
	names := strings.Split(path, "/")
	for _, n := range names {
		if tree.CheckName(n) != nil {
			return nil, false
		}
	}
	return names, true
}
