package vfs

import (
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
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
func (r *Root) Unchanged(path string) (in Input, ok bool) {
	ok = r.fromFolder(path, func(p Dir, name string) bool {
		in, ok = p.Unchanged(name)
		return ok
	})
	return in, ok
}

// Written returns the path of the file in the writable layer that holds the
// whole content of the regular file at path, so that it can be moved away
// instead of copied, after the action has ended and if nobody else can have it
// open. It is false for inputs, for whatever is no regular file, and for a file
// with several links: what is moved into a store must have no second name. With
// metadata images it is also false for inputs that were written to: whoever copies
// them from Path is noticed, and OnBlob told of what they were.
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

// fromFolder calls f with the folder that path is in, and the name it has there. It is false if there is none.
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

// WrittenBytes returns what the files take that the action has made or changed, on
// the disk or, with Options.UpperMemory, in memory: each file and folder at least
// 4 KiB. When it has seen more than most it looks no further. It looks at each of them, without
// waiting for the action; what is removed meanwhile does not count. Not seen are
// files that have no name any more and, among hard links without overlayfs, those
// that have several.
func (r *Root) WrittenBytes(most int64) int64 {
	if r.over != nil {
		return folder.Usage(string(r.over.Upper()), most)
	}
	// Inputs, if there are any, are in it, too, with more than one link.
	return folder.UsageOf(r.Path(), most, func(nlink uint64) bool { return r.links == nil || nlink == 1 })
}

// InMemory reports whether what the action writes is in memory.
func (r *Root) InMemory() bool { return r.writable.state == folderMounted }

// MemoryLeft returns how much of Options.UpperMemory is left, and whether it is as good as used up now: what the action writes
// may have been cut short, whatever it says. It must not be called after Close.
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
