package prefetch

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// TestOneDirectoryAtManyPaths: what a run has read of a large directory, which it found at a
// thousand paths, is not gone through for ever, and takes little memory.
func TestOneDirectoryAtManyPaths(t *testing.T) {
	const entries, most = 1 << 14, 64 << 20
	s := newStorage()
	large, top := &repb.Directory{}, &repb.Directory{}
	absent := fileDigest("no directory", 1).Proto()
	file := fileDigest("a/large file", largeBytes+1)
	for i := range entries {
		large.Directories = append(large.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("d%05d", i), Digest: absent})
	}
	large.Files = append(large.Files, &repb.FileNode{Name: "f", Digest: fileDigest("f", 1).Proto()})
	below := s.putDirectory(t, large).Proto()
	var r Recorder
	for i := range maxFirstPaths / 2 {
		name := fmt.Sprintf("d%05d", i)
		top.Directories = append(top.Directories, &repb.DirectoryNode{Name: name, Digest: below})
		r.Read(name+"/f", tree.File)
	}
	root := s.putDirectory(t, top)
	var parts PartReads
	parts.Read(file, 0, 1)
	for what, does := range map[string]func(func(digest.Digest) (*tree.Directory, bool)) int{
		"Directories": func(local func(digest.Digest) (*tree.Directory, bool)) int {
			return len(Directories(local, root, r.Has))
		},
		"FirstFiles": func(local func(digest.Digest) (*tree.Directory, bool)) int {
			return len(r.FirstFiles(local, root))
		},
		"Seen": func(local func(digest.Digest) (*tree.Directory, bool)) int {
			return 1 + len(parts.Seen(local, root, r.Has))
		},
	} {
		r.Has(0)
		var before, after runtime.MemStats
		looked := 0
		runtime.ReadMemStats(&before)
		found := does(func(d digest.Digest) (*tree.Directory, bool) {
			dir, ok := s.everywhere(d)
			if ok {
				looked += dir.Len()
			}
			return dir, ok
		})
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; found == 0 || looked > maxCompared+entries+1 || bytes > most {
			t.Errorf("%s: %d found, %d entries looked at, %d bytes", what, found, looked, bytes)
		}
	}
}

// TestWalkOfOneDirectoryAtManyPaths: a race goes through a part of such a tree, too, when all of it
// is foreseen.
func TestWalkOfOneDirectoryAtManyPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const entries = 1 << 14
		s := newStorage()
		large, top := &repb.Directory{}, &repb.Directory{}
		for i := range entries {
			large.Files = append(large.Files, &repb.FileNode{Name: fmt.Sprintf("f%05d", i), Digest: fileDigest("f", 1).Proto()})
		}
		below := s.putDirectory(t, large)
		var r Recorder
		for i := range 1 << 10 {
			name := fmt.Sprintf("d%05d", i)
			top.Directories = append(top.Directories, &repb.DirectoryNode{Name: name, Digest: below.Proto()})
			r.Read(fmt.Sprintf("%s/f%05d", name, i), tree.File)
		}
		root := s.putDirectory(t, top)
		s.local[root], s.local[below] = true, true
		race := Start(t.Context(), Spec{Root: root, Source: s, Profile: NewProfile(r.Hashes(), ProfileOptions{})})
		synctest.Wait()
		stats := race.Stop()
		// About twenty files of each are foreseen, most of them as false positives.
		if most := int64(32 * maxCompared / entries); stats.Foreseen.Files == 0 || stats.Foreseen.Files > most {
			t.Errorf("%d files are foreseen, want at most %d", stats.Foreseen.Files, most)
		}
	})
}
