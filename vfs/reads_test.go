package vfs

import (
	"maps"
	"testing"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/fuse"
)

// TestReadsOfBothLayers: a path that both FUSE and images report counts once.
func TestReadsOfBothLayers(t *testing.T) {
	var told readHook
	r := reads{inodes: fuse.NewInodes(), onFirst: told.hook, seen: map[uint64]struct{}{}}
	for range 2 {
		r.opened("a/b/file", tree.Entry{Kind: File})
		r.opened("a/c", tree.Entry{Kind: Directory})
		r.opened("", tree.Entry{Kind: Directory})
	}
	want := map[string]int{"": 1, "a": 1, "a/b": 1, "a/b/file": 1, "a/c": 1}
	if !maps.Equal(told.seen, want) {
		t.Errorf("told of %v, want %v", told.seen, want)
	}
	if s := r.total(); s.FilesRead != 1 || s.DirectoriesRead != 4 {
		t.Errorf("stats %+v", s)
	}
	ino := r.inodes.Of(r.inodes.Of(r.inodes.Of(fuse.RootInode, "a"), "b"), "file")
	if r.countLocked(ino, tree.Entry{Kind: File}) {
		t.Error("the number that FUSE has of a path is not that of the path")
	}
}
