package follow

import (
	"path"
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch/mention"
)

// The bounds of a knownTree.
const (
	maxKnown = 1 << 14 // directories by path
	maxLinks = 40      // symlinks on the way to a file, as in Linux
	maxPath  = 4096    // bytes of a path, as in Linux
	// keptBytes limits the directories by path, and those that Holding searches, with their paths.
	keptBytes = 32 << 20
	// maxDirectoryBytes is the size above which no file of a directory is found, and wantedBytes
	// limits the directories that are requested.
	maxDirectoryBytes = 4 << 20
	wantedBytes       = 16 << 20
	// lookBytes of a path, or of a directory or file that is read and hashed, and lookSteps of
	// mention.Extract, take about as long as one look.
	lookBytes = 256
	lookSteps = 4
)

// A knownTree has the local directories of an input tree by their paths. It belongs to one
// goroutine, and implements mention.Tree.
type knownTree struct {
	source  Directories
	root    digest.Digest
	folders map[string]knownFolder
	kept    int64 // bytes of folders
	holders holders
	// Directories that were looked for and are not local: all, their bytes, and those to be
	// requested.
	lacked      map[digest.Digest]struct{}
	lackedBytes int64
	wanted      []digest.Digest
	// looks is how many path components may still be looked at, or what takes as long. Without any,
	// nothing is found.
	looks int
}

// A knownFolder is a directory at a path without symlinks.
type knownFolder struct {
	at  string
	dir *tree.Directory
}

func newKnownTree(s Directories, root digest.Digest) *knownTree {
	return &knownTree{source: s, root: root, folders: map[string]knownFolder{}, lacked: map[digest.Digest]struct{}{}, looks: freeLooks}
}

// Look implements mention.Tree.
func (t *knownTree) Look(p string) (at string, s mention.PathState) {
	at, e, s := t.find(p)
	if s == mention.File && e.Kind != tree.File {
		s = mention.Absent
	}
	return at, s
}

// Skip implements mention.Tree.
func (t *knownTree) Skip() { t.looks-- }

// file returns the digest of the file at p.
func (t *knownTree) file(p string) (digest.Digest, bool) {
	_, e, s := t.find(p)
	return e.Digest, s == mention.File
}

// find returns the entry at a clean path after all symlinks, and its path without any.
func (t *knownTree) find(p string) (at string, e tree.Entry, s mention.PathState) {
	links := maxLinks
	return t.look(p, &links)
}

// look is find with at most so many symlinks: those of the whole path, because each can have as many
// components that are symlinks again.
func (t *knownTree) look(p string, links *int) (at string, e tree.Entry, s mention.PathState) {
	if t.looks -= 1 + len(p)/lookBytes; t.looks < 0 || len(p) > maxPath {
		return "", e, mention.Absent
	}
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
	if *links == 0 || path.IsAbs(e.Target) || !mention.Inside(target) {
		return "", e, mention.Absent
	}
	*links--
	return t.look(target, links)
}

// folder returns the directory at a clean path. If it is not local, it is wanted.
func (t *knownTree) folder(p string, links *int) (knownFolder, mention.PathState) {
	if found, ok := t.folders[p]; ok {
		return found, mention.Folder
	}
	at, e, s := t.look(p, links)
	switch {
	case s == mention.File:
		return knownFolder{}, mention.Absent
	case s != mention.Folder:
		return knownFolder{}, s
	case e.Digest.SizeBytes() > maxDirectoryBytes:
		return knownFolder{}, mention.Absent
	}
	dir, ok := t.local(e.Digest)
	if !ok {
		return knownFolder{}, t.want(e.Digest)
	}
	found := knownFolder{at, dir}
	bytes := found.bytes() + int64(len(p))
	if len(t.folders) < maxKnown && t.kept+bytes <= keptBytes {
		t.folders[p] = found
		t.kept += bytes
	}
	return found, mention.Folder
}

// local returns a directory that is local. It may have to be read from the disk.
func (t *knownTree) local(d digest.Digest) (*tree.Directory, bool) {
	dir, ok := t.source.LocalDirectory(d)
	if ok {
		t.looks -= int(d.SizeBytes() / lookBytes)
	}
	return dir, ok
}

// bytes returns how much memory f holds.
func (f knownFolder) bytes() int64 { return int64(f.dir.Bytes() + len(f.at)) }

// want notes that a directory is needed: it is Unknown, or Absent if it cannot be had.
func (t *knownTree) want(d digest.Digest) mention.PathState {
	if _, again := t.lacked[d]; again {
		return mention.Unknown
	}
	if len(t.lacked) == mentionDirectories || t.lackedBytes+d.SizeBytes() > wantedBytes {
		return mention.Absent
	}
	t.lackedBytes += d.SizeBytes()
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

// Starting implements mention.Tree.
func (t *knownTree) Starting(folder, prefix string) (name string) {
	links := maxLinks
	in, s := t.folder(folder, &links)
	if s != mention.Folder {
		return ""
	}
	if i, _ := in.dir.Search(prefix); i < in.dir.Len() && strings.HasPrefix(in.dir.Name(i), prefix) {
		name = in.dir.Name(i)
	}
	return name
}
