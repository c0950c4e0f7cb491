package vfs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// invalidDirectories are invalid messages, by their fault.
func invalidDirectories() map[string]*repb.Directory {
	d := digest.Of(digest.SHA256, nil).Proto()
	files := func(names ...string) *repb.Directory {
		m := &repb.Directory{}
		for _, n := range names {
			m.Files = append(m.Files, &repb.FileNode{Name: n, Digest: d})
		}
		return m
	}
	dirs := func(m *repb.Directory, names ...string) *repb.Directory {
		for _, n := range names {
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: n, Digest: d})
		}
		return m
	}
	links := func(m *repb.Directory, names ...string) *repb.Directory {
		for _, n := range names {
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: n, Target: "t"})
		}
		return m
	}
	return map[string]*repb.Directory{
		"file without digest":      {Files: []*repb.FileNode{{Name: "x"}}},
		"file with half a hash":    {Files: []*repb.FileNode{{Name: "x", Digest: &repb.Digest{Hash: d.Hash[:32]}}}},
		"file with capitals":       {Files: []*repb.FileNode{{Name: "x", Digest: &repb.Digest{Hash: strings.Repeat("AB", 32)}}}},
		"file of negative size":    {Files: []*repb.FileNode{{Name: "x", Digest: &repb.Digest{Hash: d.Hash, SizeBytes: -1}}}},
		"directory without digest": {Directories: []*repb.DirectoryNode{{Name: "x"}}},
		"symlink to nothing":       {Symlinks: []*repb.SymlinkNode{{Name: "x"}}},
		"symlink with NUL":         {Symlinks: []*repb.SymlinkNode{{Name: "x", Target: "a\x00b"}}},
		"symlink too long":         {Symlinks: []*repb.SymlinkNode{{Name: "x", Target: strings.Repeat("a", 4096)}}},
		"nameless file":            files("", "x"),
		"dot":                      files(".", "x"),
		"dot dot":                  files("..", "x"),
		"path":                     files("a/b", "x"),
		"absolute path":            files("/etc/passwd", "x"),
		"NUL":                      files("a\x00b", "x"),
		"too long":                 files(strings.Repeat("a", 256), "x"),
		"twice":                    files("x", "x"),
		"out of order":             files("x", "a"),
		"directory dot dot":        dirs(files("x"), ".."),
		"nameless directory":       dirs(files("x"), ""),
		"directory twice":          dirs(files("x"), "d", "d"),
		"directories unsorted":     dirs(files("x"), "d", "c"),
		"symlink path":             links(files("x"), "../x"),
		"symlink twice":            links(files("x"), "l", "l"),
		"symlinks unsorted":        links(files("x"), "l", "k"),
		"file and directory":       dirs(files("x"), "x"),
		"file and symlink":         links(files("x"), "x"),
		"directory and symlink":    links(dirs(files("x"), "y"), "y"),
		"last of many is wrong":    files("a", "b", "c", "d", "x", "x/"),
		"one of each, and again":   links(dirs(files("a", "x"), "b"), "b"),
	}
}

// TestInvalidDirectoryAtDepth: an invalid directory affects only its own path.
func TestInvalidDirectoryAtDepth(t *testing.T) {
	f := openFS(t, Options{})
	for name, m := range invalidDirectories() {
		t.Run(name, func(t *testing.T) {
			src := vfstest.NewSource(t)
			bad := digest.Of(digest.SHA256, []byte(name)) // src.add would sort it
			src.Dirs[bad] = m
			good := src.Tree(t, "file").Proto()
			a := src.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{
				{Name: "bad", Digest: bad.Proto()}, {Name: "good", Digest: good},
			}})
			root := src.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "a", Digest: a.Proto()}}})
			r := openRoot(t, f, RootSpec{Digest: root, Source: src})
			p := filepath.Join(r.Path(), "a")
			if _, err := os.Lstat(filepath.Join(p, "bad")); err != nil {
				t.Errorf("the directory was looked into for its attributes: %v", err)
			}
			if err := r.Err(); err != nil {
				t.Errorf("error before the directory was read: %v", err)
			}
			for range 2 {
				_, listErr := os.ReadDir(filepath.Join(p, "bad"))
				_, openErr := os.ReadFile(filepath.Join(p, "bad", "x"))
				_, otherErr := os.Lstat(filepath.Join(p, "bad", "nothing"))
				createErr := os.WriteFile(filepath.Join(p, "bad", "new"), nil, 0o600)
				for what, err := range map[string]error{
					"list": listErr, "open": openErr, "look up": otherErr, "create": createErr,
				} {
					if !isEIO(err) {
						t.Errorf("%s: %v, want EIO", what, err)
					}
				}
			}
			if got, err := os.ReadFile(filepath.Join(p, "good/file")); err != nil || string(got) != "content of file" {
				t.Errorf("beside it: %q, %v", got, err)
			}
			if list, err := os.ReadDir(p); err != nil || len(list) != 2 {
				t.Errorf("its parent lists %v, %v", list, err)
			}
			if err := os.WriteFile(filepath.Join(p, "new"), nil, 0o600); err != nil {
				t.Errorf("create beside it: %v", err)
			}
			if err := r.Err(); !errors.Is(err, tree.ErrInvalid) || !strings.Contains(err.Error(), "a/bad") {
				t.Errorf("Err: %v, want an invalid directory a/bad", err)
			}
		})
	}
}

// TestTreeThatContainsItself can only come from a Source that lies. It ends
// where a path does.
func TestTreeThatContainsItself(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := digest.Of(digest.SHA256, []byte("not its digest"))
	src.Dirs[root] = &repb.Directory{
		Files:       []*repb.FileNode{{Name: "file", Digest: src.Blob(t, "x").Proto()}},
		Directories: []*repb.DirectoryNode{{Name: "again", Digest: root.Proto()}},
	}
	var seen readHook
	r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
	p := strings.Repeat("again/", 300) + "file"
	if got, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if got := r.Stats(); got.DirectoriesRead != 301 || got.FilesRead != 1 {
		t.Errorf("stats: %+v", got)
	}
	if files := slices.Collect(maps.Keys(seen.kinds())); !slices.Contains(files, p) {
		t.Error("the file was not reported under its path")
	}
	if _, err := os.Lstat(filepath.Join(r.Path(), strings.Repeat("again/", 800))); err == nil {
		t.Error("a path longer than the kernel's limit is there")
	}
}
