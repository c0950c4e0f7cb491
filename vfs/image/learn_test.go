package image

import (
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// A readSource counts the directories that are read.
type readSource struct {
	Source
	reads int
}

func (s *readSource) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	s.reads++
	return s.Source.LocalDirectory(d)
}

// TestLearnReadsSmallDirectoriesOnce: roots share many small directories, and differ in one file.
func TestLearnReadsSmallDirectoriesOnce(t *testing.T) {
	const folders, files = 60, MinEntries / 60
	src := vfstest.NewSource(t)
	rootOf := func(own string) digest.Digest {
		paths := []string{own}
		for i := range folders {
			for j := range files {
				paths = append(paths, fmt.Sprintf("lib%02d/file%d-%d", i, i, j))
			}
		}
		return src.Tree(t, paths...)
	}
	c := &Cache{
		seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, small: map[digest.Digest]int{},
		unfit: bounded.NewShared[digest.Digest, struct{}](maxUnfit), noGathers: true,
	}
	learn := func(root digest.Digest) int {
		s := &readSource{Source: src}
		c.learn(closedRoot{root, s})
		return s.reads
	}
	if got := learn(rootOf("first")); got > 3 {
		t.Errorf("%d directories were read of a tree of which only the root may be local", got)
	}
	for i, want := range []int{folders, 3, 3} {
		root := rootOf(fmt.Sprint("own", i))
		loadAll(t, src, root)
		if got := learn(root); got < 1 || i == 0 && got < want || i > 0 && got > want {
			t.Errorf("root %d: %d directories were read, want about %d", i, got, want)
		}
	}
}
