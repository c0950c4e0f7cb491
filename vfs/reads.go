package vfs

import (
	"strings"
	"sync"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/fuse"
)

// reads counts the inputs that an action read, each path once, whichever layer reports it.
type reads struct {
	inodes  fuse.Inodes
	onFirst func(path string, k Kind) // may be nil

	mu    sync.Mutex
	seen  map[uint64]struct{} // inode numbers of the paths that were read
	stats Stats
}

// read counts the first read of n and reports it.
func (r *reads) read(n *fuse.Node) {
	r.mu.Lock()
	first := r.countLocked(n.Inode(), n.Entry)
	r.mu.Unlock()
	if first && r.onFirst != nil {
		r.onFirst(n.Path(), n.Kind)
	}
}

// opened counts and reports the first read of the input e, which is at path, and of its parent
// directories.
func (r *reads) opened(path string, e tree.Entry) {
	type read struct {
		path string
		kind Kind
	}
	var first []read
	note := func(ino uint64, path string, e tree.Entry) {
		if r.countLocked(ino, e) {
			first = append(first, read{path, e.Kind})
		}
	}
	r.mu.Lock()
	ino := uint64(fuse.RootInode)
	for at := 0; at < len(path); {
		note(ino, strings.TrimSuffix(path[:at], "/"), tree.Entry{Kind: tree.Dir})
		name, _, _ := strings.Cut(path[at:], "/")
		ino = r.inodes.Of(ino, name)
		at += len(name) + 1
	}
	note(ino, path, e)
	r.mu.Unlock()
	if r.onFirst == nil {
		return
	}
	for _, f := range first {
		r.onFirst(f.path, f.kind)
	}
}

// countLocked counts the first read of e, whose inode number is ino, and reports whether it was the
// first.
func (r *reads) countLocked(ino uint64, e tree.Entry) bool {
	if _, again := r.seen[ino]; again {
		return false
	}
	r.seen[ino] = struct{}{}
	switch e.Kind {
	case Directory:
		r.stats.DirectoriesRead++
	case File:
		r.stats.FilesRead++
		r.stats.BytesRead += e.Digest.SizeBytes()
	case Symlink:
		r.stats.SymlinksRead++
	}
	return true
}

func (r *reads) total() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}
