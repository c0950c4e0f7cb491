package follow

import (
	"path"
	"slices"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch/mention"
)

// The bounds of a knownTree.
const (
	maxKnown   = 1 << 14 // directories by path
	maxHolders = 16      // results of Holding
	maxLinks   = 8       // symlinks in a path
	maxVisits  = 1 << 16 // directories that may be visited for Holding
	maxFolders = 4096    // directories that Holding searches
)

// A knownTree has the local directories of an input tree by their paths. It belongs to one
// goroutine, and implements mention.Tree.
type knownTree struct {
	source  Directories
	root    digest.Digest
	folders map[string]knownFolder
	all     []knownFolder // for Holding; nil: to be collected
	// Directories that were looked for and are not local: all, and those to be requested.
	lacked map[digest.Digest]struct{}
	wanted []digest.Digest
}

// A knownFolder is a directory at a path without symlinks.
type knownFolder struct {
	at  string
	dir *tree.Directory
}

func newKnownTree(s Directories, root digest.Digest) *knownTree {
	return &knownTree{source: s, root: root, folders: map[string]knownFolder{}, lacked: map[digest.Digest]struct{}{}}
}

// Look implements mention.Tree.
func (t *knownTree) Look(p string) (at string, s mention.Sight) {
	at, e, s := t.look(p, maxLinks)
	if s == mention.File && e.Kind != tree.File {
		s = mention.Absent
	}
	return at, s
}

// file returns the digest of the file at p.
func (t *knownTree) file(p string) (digest.Digest, bool) {
	_, e, s := t.look(p, maxLinks)
	return e.Digest, s == mention.File
}

// look returns the entry at a clean path after all symlinks, and its path without any.
func (t *knownTree) look(p string, links int) (at string, e tree.Entry, s mention.Sight) {
	if p == "." {
		return p, tree.Entry{Kind: tree.Dir, Digest: t.root}, mention.Folder
	}
	up, s := t.folder(path.Dir(p), links)
	if s != mention.Folder {
		return "", e, s
	}
	e, ok := up.dir.Find(path.Base(p))
	if !ok {
		return "", e, mention.Absent
	}
	at = path.Join(up.at, path.Base(p))
	switch e.Kind {
	case tree.Dir:
		return at, e, mention.Folder
	case tree.File:
		return at, e, mention.File
	}
	target := path.Join(up.at, e.Target)
	if links == 0 || path.IsAbs(e.Target) || !mention.Inside(target) {
		return "", e, mention.Absent
	}
	return t.look(target, links-1)
}

// folder returns the directory at a clean path. If it is not local, it is wanted.
func (t *knownTree) folder(p string, links int) (knownFolder, mention.Sight) {
	if found, ok := t.folders[p]; ok {
		return found, mention.Folder
	}
	at, e, s := t.look(p, links)
	switch {
	case s == mention.File:
		return knownFolder{}, mention.Absent
	case s != mention.Folder:
		return knownFolder{}, s
	}
	dir, ok := t.source.LocalDirectory(e.Digest)
	if !ok {
		return knownFolder{}, t.want(e.Digest)
	}
	found := knownFolder{at, dir}
	if len(t.folders) < maxKnown {
		t.folders[p] = found
	}
	return found, mention.Folder
}

// want notes that a directory is needed: it is Unknown, or Absent if it cannot be had.
func (t *knownTree) want(d digest.Digest) mention.Sight {
	if _, again := t.lacked[d]; again {
		return mention.Unknown
	}
	if len(t.lacked) == mentionDirectories {
		return mention.Absent
	}
	t.lacked[d] = struct{}{}
	t.wanted = append(t.wanted, d)
	return mention.Unknown
}

// missing takes the directories to request.
func (t *knownTree) missing() []digest.Digest {
	wanted := t.wanted
	t.wanted = nil
	return wanted
}

// forget forgets which directories there are, because there are more.
func (t *knownTree) forget() { t.all = nil }

// Holding implements mention.Tree.
func (t *knownTree) Holding(name string) (folders []string) {
	if t.all == nil {
		t.collect()
	}
	for _, f := range t.all {
		if _, ok := f.dir.Search(name); ok {
			if folders = append(folders, f.at); len(folders) == maxHolders {
				break
			}
		}
	}
	return folders
}

// collect finds the local directories, level by level.
func (t *knownTree) collect() {
	type visit struct {
		at     string
		digest digest.Digest
	}
	for todo := []visit{{".", t.root}}; len(todo) > 0 && len(t.all) < maxFolders; todo = todo[1:] {
		dir, ok := t.source.LocalDirectory(todo[0].digest)
		if !ok {
			continue
		}
		t.all = append(t.all, knownFolder{todo[0].at, dir})
		for i := range dir.Len() {
			if dir.Kind(i) == tree.Dir && len(todo) < maxVisits {
				todo = append(todo, visit{path.Join(todo[0].at, dir.Name(i)), dir.At(i).Digest})
			}
		}
	}
	t.all = slices.Clip(t.all)
}
