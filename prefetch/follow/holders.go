package follow

import (
	"path"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// The bounds of holders.
const (
	maxHolders = 16   // results of Holding
	maxFolders = 4096 // directories that Holding searches
	// lookEntries of a directory are gone through in the time of a look.
	lookEntries = 256
)

// holders are the local directories of a knownTree, level by level, for Holding.
type holders struct {
	all   []knownFolder // nil: to be collected
	bytes int64         // of all
	// dirs are those of all, and before those of all when it was forgotten: they are not read again.
	dirs, before map[digest.Digest]*tree.Directory
}

// forget forgets which directories are local, because there are more.
func (t *knownTree) forget() {
	if t.holders.all != nil {
		t.holders = holders{before: t.holders.dirs}
	}
}

func (h *holders) full() bool { return len(h.all) == maxFolders || h.bytes >= keptBytes }

// Holding implements mention.Tree. Each directory that is searched counts as a look.
func (t *knownTree) Holding(name string) (folders []string) {
	if t.holders.all == nil {
		t.collect()
	}
	for _, f := range t.holders.all {
		if t.looks--; t.looks < 0 {
			return nil
		}
		if _, ok := f.dir.Search(name); ok {
			if folders = append(folders, f.at); len(folders) == maxHolders {
				break
			}
		}
	}
	return folders
}

// collect finds the local directories.
func (t *knownTree) collect() {
	h := &t.holders
	h.dirs = map[digest.Digest]*tree.Directory{}
	defer func() { h.before = nil }()
	t.hold(knownFolder{}, ".", t.root)
	for i := 0; i < len(h.all); i++ {
		in := h.all[i]
		t.looks -= in.dir.Len() / lookEntries
		for j := range in.dir.Len() {
			if h.full() || t.looks <= 0 {
				return
			}
			if in.dir.Kind(j) == tree.Dir {
				t.hold(in, in.dir.Name(j), in.dir.At(j).Digest)
			}
		}
	}
}

// hold adds the directory with that name to the holders if it is local.
func (t *knownTree) hold(in knownFolder, name string, d digest.Digest) {
	t.looks--
	if d.SizeBytes() > maxDirectoryBytes || len(in.at)+len(name) >= maxPath {
		return
	}
	h := &t.holders
	dir, ok := h.dirs[d]
	if !ok {
		dir, ok = h.before[d]
	}
	if !ok {
		dir, ok = t.local(d)
	}
	if !ok {
		return
	}
	found := knownFolder{path.Join(in.at, name), dir}
	h.dirs[d] = dir
	h.bytes += found.bytes()
	h.all = append(h.all, found)
}
