package copied

import (
	"slices"
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
	root    entry
	entries []entry // the others; each directory is before its entries
	bytes   int64
}

type entry struct {
	tree.Entry
	path    string
	content []byte // of a file, until it is copied
	first   int    // of a directory: its entries are this one of the tree,
	count   int    // and so many from there on
	inode   uint64 // of its copy
}

// Read returns the tree of the Directory root, if src has all of it and it takes at most so many
// bytes on a disk, where each entry takes 4 KiB or more.
func Read(src Source, root digest.Digest, most int64) (*Tree, bool) {
	t := &Tree{root: entry{Entry: tree.Entry{Kind: tree.Dir, Digest: root}}}
	var ok bool
	t.root.first, t.root.count, ok = t.read(src, root, "", most)
	return t, ok && t.fill(src)
}

// read adds the entries of the Directory d, whose path is a prefix of theirs, and all below them. It
// returns where those of d are.
func (t *Tree) read(src Source, d digest.Digest, path string, most int64) (first, count int, ok bool) {
	dir, ok := src.LocalDirectory(d)
	if !ok || int64(dir.Len()) > (most-t.bytes)/folder.EntryBytes {
		return 0, 0, false
	}
	first, count = len(t.entries), dir.Len()
	for i := range count {
		e := dir.At(i)
		if !keepsTime(e.MTime) {
			return 0, 0, false
		}
		t.entries = append(t.entries, entry{Entry: e, path: path + e.Name})
		t.bytes += onDisk(e)
	}
	if t.bytes > most {
		return 0, 0, false
	}
	for i := first; i < first+count; i++ {
		if e := t.entries[i]; e.Kind == tree.Dir {
			if e.first, e.count, ok = t.read(src, e.Digest, e.path+"/", most); !ok {
				return 0, 0, false
			}
			t.entries[i] = e
		}
	}
	return first, count, true
}

// Folders returns the paths of all directories, each after the one that it is in, and then those of
// others that are no entries. Of a tree with symlinks it returns no others: a symlink that leads to one
// would work before the caller has made it.
func (t *Tree) Folders(others []string) (all []string) {
	for i := range t.entries {
		if e := &t.entries[i]; e.Kind == tree.Dir {
			all = append(all, e.path)
		}
	}
	if slices.ContainsFunc(t.entries, func(e entry) bool { return e.Kind == tree.Symlink }) {
		return all
	}
	for _, at := range others {
		if !t.Has(at) {
			all = append(all, at)
		}
	}
	return all
}

// Has reports whether there is an entry at a path.
func (t *Tree) Has(at string) bool {
	return slices.ContainsFunc(t.entries, func(e entry) bool { return e.path == at })
}

// in returns the entries of a directory, in the order of their names.
func (t *Tree) in(dir *entry) []entry { return t.entries[dir.first : dir.first+dir.count] }

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

// onDisk returns how many bytes an entry takes on a disk with blocks of 4 KiB.
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
