package copied

import (
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Source has the directories and blobs of input roots that are on the local disk.
type Source interface {
	// LocalDirectory returns the Directory with a digest; false: it is not local, or not valid.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	// LocalBlob returns the bytes with a digest; false: they are not local, or do not match it.
	LocalBlob(d digest.Digest) ([]byte, bool)
}

// A Tree is a small input root in memory.
type Tree struct {
	entries []entry // each directory is before its entries
	bytes   int64
}

// An entry is one of the tree, but for the root itself.
type entry struct {
	tree.Entry
	path    string
	content []byte // of a file
}

// Read returns the tree of the Directory root, if src has all of it and it takes at most so many
// bytes on a disk, where each entry takes 4 KiB or more.
func Read(src Source, root digest.Digest, most int64) (*Tree, bool) {
	t := &Tree{}
	return t, t.read(src, root, "", most) && t.fill(src)
}

// read adds the entries of the Directory d, whose path is a prefix of theirs, and all below them.
func (t *Tree) read(src Source, d digest.Digest, path string, most int64) bool {
	if t.bytes > most {
		return false
	}
	dir, ok := src.LocalDirectory(d)
	if !ok || int64(dir.Len()) > (most-t.bytes)/folder.EntryBytes {
		return false
	}
	first := len(t.entries)
	for i := range dir.Len() {
		e := dir.At(i)
		if !keepsTime(e.MTime) {
			return false
		}
		t.entries = append(t.entries, entry{Entry: e, path: path + e.Name})
		t.bytes += onDisk(e)
	}
	for _, e := range t.entries[first:len(t.entries):len(t.entries)] {
		if e.Kind == tree.Dir && !t.read(src, e.Digest, e.path+"/", most) {
			return false
		}
	}
	return t.bytes <= most
}

// fill reads the files.
func (t *Tree) fill(src Source) bool {
	for i := range t.entries {
		e := &t.entries[i]
		if e.Kind != tree.File {
			continue
		}
		var ok bool
		if e.content, ok = src.LocalBlob(e.Digest); !ok {
			return false
		}
	}
	return true
}

// Bytes returns how many bytes the tree takes on a disk.
func (t *Tree) Bytes() int64 { return t.bytes }

// onDisk returns how many bytes an entry takes on a disk.
func onDisk(e tree.Entry) int64 {
	if e.Kind != tree.File {
		return folder.EntryBytes
	}
	blocks := (e.Digest.SizeBytes() + folder.EntryBytes - 1) / folder.EntryBytes
	return max(1, blocks) * folder.EntryBytes
}

// keepsTime reports whether every file system can have a file with that time.
func keepsTime(t time.Time) bool {
	const last = 1<<31 - 1
	return t.Nanosecond() == 0 && t.Unix() >= 0 && t.Unix() <= last
}
