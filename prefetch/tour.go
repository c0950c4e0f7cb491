package prefetch

import (
	"iter"
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// The bounds of what is looked at of an input tree.
const (
	maxDirectories = 1 << 16 // by a tour or a walk
	maxFiles       = 1 << 18 // those that a profile predicts
	// maxCompared bounds the entries of directories that a tour or a walk looks at: a fifth of a
	// second.
	maxCompared = 1 << 22
	// maxFoundBytes bounds the directories that a finder keeps.
	maxFoundBytes = 16 << 20
)

// A directoryAt is a directory at a path.
type directoryAt struct {
	digest digest.Digest
	hash   PathHash // of the path
}

// A tour goes through local directories of an input tree, level by level, within maxDirectories and
// maxCompared: a run can read one large directory at any number of paths.
type tour struct {
	local    func(digest.Digest) (*tree.Directory, bool)
	level    []directoryAt // to be gone through, the next one first
	entered  int           // how many directories were put in level so far
	compared int           // entries of those that were yielded
}

// newTour returns a tour that begins at root. local waits only for the disk.
func newTour(local func(digest.Digest) (*tree.Directory, bool), root digest.Digest) *tour {
	t := &tour{local: local}
	t.enter(root, RootHash)
	return t
}

// enter has the directory d at the path with hash h gone through later.
func (t *tour) enter(d digest.Digest, h PathHash) {
	if t.entered < maxDirectories {
		t.entered++
		t.level = append(t.level, directoryAt{digest: d, hash: h})
	}
}

// all yields the directories that are local, and at a path that wanted has.
func (t *tour) all(wanted func(PathHash) bool) iter.Seq2[directoryAt, *tree.Directory] {
	return func(yield func(directoryAt, *tree.Directory) bool) {
		for len(t.level) > 0 {
			at := t.level[0]
			t.level = t.level[1:]
			if !wanted(at.hash) {
				continue
			}
			dir, ok := t.local(at.digest)
			if !ok {
				continue
			}
			if t.compared += dir.Len(); t.compared > maxCompared || !yield(at, dir) {
				return
			}
		}
	}
}

// anywhere has all paths.
func anywhere(PathHash) bool { return true }

// A finder finds entries of an input tree by their paths, in local directories.
type finder struct {
	local func(digest.Digest) (*tree.Directory, bool)
	root  digest.Digest
	at    map[string]digest.Digest // of directories by path; zero: there is none
	kept  map[digest.Digest]*tree.Directory
	bytes int // of kept
}

// newFinder returns a finder for the tree of root. local waits only for the disk.
func newFinder(local func(digest.Digest) (*tree.Directory, bool), root digest.Digest) *finder {
	return &finder{local: local, root: root, at: map[string]digest.Digest{}, kept: map[digest.Digest]*tree.Directory{}}
}

// find returns the digest of the entry of that kind at path.
func (f *finder) find(path string, kind tree.Kind) (d digest.Digest, ok bool) {
	i := strings.LastIndexByte(path, '/')
	above := f.root
	if i >= 0 {
		above = f.digestAt(path[:i])
	}
	if dir := f.directory(above); dir != nil {
		if e, found := dir.Find(path[i+1:]); found && e.Kind == kind {
			return e.Digest, true
		}
	}
	return d, false
}

// digestAt returns the digest of the directory at path.
func (f *finder) digestAt(path string) digest.Digest {
	d, known := f.at[path]
	if !known {
		d, _ = f.find(path, tree.Dir)
		f.at[path] = d
	}
	return d
}

// directory returns a directory, nil if it is not local.
func (f *finder) directory(d digest.Digest) *tree.Directory {
	if dir := f.kept[d]; dir != nil || d.IsZero() {
		return dir
	}
	dir, ok := f.local(d)
	if !ok {
		return nil
	}
	if f.bytes+dir.Bytes() <= maxFoundBytes {
		f.bytes += dir.Bytes()
		f.kept[d] = dir
	}
	return dir
}
