package image

import (
	"fmt"
	"hash/maphash"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestGatherWhatChanges: if the small folders of a directory are others each time that most of them
// have been seen, ever fewer images of them are made, and again more when they are used.
func TestGatherWhatChanges(t *testing.T) {
	const folders, files, roots = 20, MinEntries / 10, 200
	src := vfstest.NewSource(t)
	blob := src.Blob(t, "content")
	c := &Cache{
		seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, small: map[digest.Digest]int{}, gathers: map[string]*gather{},
		byPath: map[string]map[digest.Digest]*image{},
		unfit:  bounded.NewShared[digest.Digest, struct{}](maxUnfit),
	}
	look := func(version int) (wanted []site) {
		var all repb.Directory
		for i := range folders {
			var dir repb.Directory
			for j := range files {
				dir.Files = append(dir.Files, &repb.FileNode{Name: fmt.Sprintf("file%03d-%d", j, version), Digest: blob.Proto()})
			}
			all.Directories = append(all.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("lib%02d", i), Digest: src.Add(t, &dir).Proto()})
		}
		root := src.Add(t, &all)
		loadAll(t, src, root)
		s := &survey{images: c, source: src, small: map[digest.Digest]int{}, left: maxVisits}
		dir, _ := src.LocalDirectory(root)
		s.gather("", dir)
		return s.wanted
	}
	made := 0
	for i := range roots {
		if len(look(i)) > 0 {
			t.Fatal("an image of folders that no earlier root had")
		}
		if wanted := look(i); len(wanted) > 0 {
			if len(wanted) != 1 || len(wanted[0].members) != folders {
				t.Fatalf("wanted: %v", wanted)
			}
			made++
		}
	}
	if made < 2 || made > 9 {
		t.Errorf("%d images for %d roots", made, roots)
	}
	need := c.gathers[""].need
	for i := range 2 {
		look(-1)
		if wanted := look(-1); i == 0 && len(wanted) > 0 {
			t.Error("an image too soon")
		}
	}
	s := site{}
	for len(s.members) == 0 {
		if wanted := look(-1); len(wanted) > 0 {
			s = wanted[0]
		}
	}
	c.byPath[""] = map[digest.Digest]*image{s.digest: {members: s.members}}
	for range 8 * need {
		if len(look(-1)) > 0 {
			t.Fatal("a second image of the same")
		}
	}
	if got := c.gathers[""].need; got >= need {
		t.Errorf("after many uses %d roots must lack an image, before it were %d", got, need)
	}
}
