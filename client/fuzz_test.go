package client

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
)

// FuzzDownload downloads arbitrary results with arbitrary Trees. Everything that Download creates
// must be below its folder, and no symlink may lead out of the folder.
func FuzzDownload(f *testing.F) {
	farm := newFarm(f, nil)
	text := farm.put(f, fn, []byte("text"))
	encoded := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	tree := encoded(&repb.Tree{Root: &repb.Directory{
		Files:       []*repb.FileNode{{Name: "a", Digest: text}},
		Directories: []*repb.DirectoryNode{{Name: "b", Digest: fn.Empty().Proto()}},
		Symlinks:    []*repb.SymlinkNode{{Name: "l", Target: "../x"}},
	}})
	for _, r := range []*repb.ActionResult{
		{OutputFiles: []*repb.OutputFile{{Path: "a/b", Digest: text}, {Path: "a", Digest: text}}},
		{OutputFiles: []*repb.OutputFile{{Path: "../a", Digest: text}}},
		{OutputSymlinks: []*repb.OutputSymlink{{Path: "l", Target: "a/../.."}, {Path: "m/n", Target: "../l"}}},
		{
			OutputFiles:    []*repb.OutputFile{{Path: "l/x", Digest: text}},
			OutputSymlinks: []*repb.OutputSymlink{{Path: "l", Target: "x/y"}, {Path: "x/y", Target: ".."}},
		},
		{OutputDirectories: []*repb.OutputDirectory{{Path: "d"}, {Path: "d/e"}, {Path: ""}}},
		{OutputDirectories: []*repb.OutputDirectory{{Path: "x", RootDirectoryDigest: text}}},
	} {
		f.Add(encoded(r), tree)
		f.Add(encoded(r), tree[:len(tree)-1])
	}
	f.Fuzz(func(t *testing.T, result, tree []byte) {
		r := &repb.ActionResult{}
		if proto.Unmarshal(result, r) != nil {
			return
		}
		for _, d := range r.GetOutputDirectories() {
			if d.GetTreeDigest() == nil && d.GetRootDirectoryDigest() == nil {
				d.TreeDigest = farm.put(t, fn, tree)
			}
		}
		above := t.TempDir()
		dir := filepath.Join(above, "inner", "outputs")
		err := Download(t.Context(), farm.client(fn), fn, r, dir)
		_ = filepath.WalkDir(above, func(path string, entry fs.DirEntry, walkErr error) error {
			if walkErr != nil {
				t.Error(walkErr)
			}
			inside := path == dir || strings.HasPrefix(path, dir+"/")
			if !inside && path != above && path != filepath.Dir(dir) {
				t.Errorf("it made %s, %v", path, err)
			}
			if entry != nil && entry.Type() == fs.ModeSymlink {
				if to, err := filepath.EvalSymlinks(path); err == nil && to != dir && !strings.HasPrefix(to, dir+"/") {
					t.Errorf("%s leads to %s", path, to)
				}
			}
			return nil
		})
		if _, statErr := os.Stat(dir); err == nil && statErr != nil {
			t.Error(statErr)
		}
	})
}
