package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

func TestReadsInputs(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		h := startChild(t, "helper")
		src := vfstest.NewSource(t)
		root := src.Tree(t, "a/b/file", "a/other", "empty/", "link -> a/b/file", "dangling -> nowhere")
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		for range 2 {
			for p, want := range map[string]string{
				"a/b/file": "content of file", "link": "content of file", "a/other": "content of other",
			} {
				got, err := os.ReadFile(filepath.Join(r.Path(), p))
				if err != nil || string(got) != want {
					t.Errorf("read %s: %q, %v", p, got, err)
				}
				if got := h.do("map", filepath.Join(r.Path(), p)); got != want {
					t.Errorf("map %s: %q", p, got)
				}
			}
		}
		if got, err := os.Readlink(filepath.Join(r.Path(), "dangling")); got != "nowhere" || err != nil {
			t.Errorf("readlink: %q, %v", got, err)
		}
		want := []string{".", "a", "a/b", "a/b/file", "a/other", "dangling", "empty", "link"}
		if got := vfstest.Walk(t, r.Path()); !slices.Equal(got, want) {
			t.Errorf("walk: %q, want %q", got, want)
		}
		want1 := Stats{DirectoriesRead: 4, FilesRead: 2, SymlinksRead: 2, BytesRead: 31}
		if got, want := withoutLookups(r.Stats()), want1; got != want {
			t.Errorf("stats: %+v, want %+v", got, want)
		}
		if err := r.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunsInputs(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		h := startChild(t, "helper")
		src := vfstest.NewSource(t)
		tool := src.Blob(t, "#!/bin/sh\necho ran $1\n")
		root := src.Add(t, &repb.Directory{Files: []*repb.FileNode{
			{Name: "tool", Digest: tool.Proto(), IsExecutable: true},
			{Name: "text", Digest: tool.Proto()},
		}})
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		if got := h.do("run", filepath.Join(r.Path(), "tool"), "well"); got != "ran well\n" {
			t.Errorf("run: %q", got)
		}
		if got := h.do("run", filepath.Join(r.Path(), "text")); !strings.Contains(got, "permission denied") {
			t.Errorf("run of a file that is not executable: %q", got)
		}
	})
}

func TestLargeFile(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		content := strings.Repeat("0123456789abcdef", 1<<18) + "end"
		root := src.Add(t, &repb.Directory{Files: []*repb.FileNode{
			{Name: "large", Digest: src.Blob(t, content).Proto()},
		}})
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		got, err := os.ReadFile(filepath.Join(r.Path(), "large"))
		if err != nil || string(got) != content {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		file, err := os.Open(filepath.Join(r.Path(), "large"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		buf := make([]byte, 100)
		if n, err := file.ReadAt(buf, 3<<20+1); err != nil || string(buf[:n]) != content[3<<20+1:][:100] {
			t.Errorf("read in the middle: %q, %v", buf[:n], err)
		}
		if n, _ := file.ReadAt(buf, int64(len(content)-3)); string(buf[:n]) != "end" {
			t.Errorf("read at the end: %q", buf[:n])
		}
	})
}

func TestAttributes(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	d := src.Blob(t, "12345").Proto()
	when := time.Date(2024, 5, 6, 7, 8, 9, 123456789, time.UTC)
	root := src.Add(t, &repb.Directory{
		Files: []*repb.FileNode{
			{Name: "plain", Digest: d},
			{Name: "exec", Digest: d, IsExecutable: true},
			{Name: "mode", Digest: d, NodeProperties: &repb.NodeProperties{
				UnixMode: wrapperspb.UInt32(0o107640), Mtime: timestamppb.New(when),
			}},
		},
		Directories: []*repb.DirectoryNode{{Name: "dir", Digest: src.Tree(t, "x").Proto()}},
		Symlinks:    []*repb.SymlinkNode{{Name: "link", Target: "plain"}},
	})
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	for _, c := range []struct {
		name  string
		mode  fs.FileMode
		size  int64
		mtime time.Time
	}{
		{"plain", 0o444, 5, time.Unix(tree.DefaultMTime, 0)},
		{"exec", 0o555, 5, time.Unix(tree.DefaultMTime, 0)},
		{"mode", 0o640, 5, when},
		{"dir", fs.ModeDir | 0o755, 4096, time.Unix(tree.DefaultMTime, 0)},
		{"link", fs.ModeSymlink | 0o777, 5, time.Unix(tree.DefaultMTime, 0)},
	} {
		st, err := os.Lstat(filepath.Join(r.Path(), c.name))
		if err != nil {
			t.Error(err)
			continue
		}
		if st.Mode() != c.mode || st.Size() != c.size || !st.ModTime().Equal(c.mtime) {
			t.Errorf("%s: %s, %d bytes, %s", c.name, st.Mode(), st.Size(), st.ModTime())
		}
		if u := st.Sys(); u == nil {
			t.Errorf("%s: no stat", c.name)
		}
	}
	var a, b unix.Stat_t
	if err := errors.Join(unix.Lstat(filepath.Join(r.Path(), "plain"), &a),
		unix.Lstat(filepath.Join(r.Path(), "exec"), &b)); err != nil {
		t.Fatal(err)
	}
	if a.Nlink != 1 || a.Ino == b.Ino || a.Uid != uint32(os.Geteuid()) {
		t.Errorf("two names of one blob: nlink %d, inodes %d and %d, uid %d", a.Nlink, a.Ino, b.Ino, a.Uid)
	}
}

func TestLowerIsReadOnly(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "file"), Source: src})
	p := filepath.Join(fusePoint(r.points.path), "file")
	for name, err := range map[string]error{
		"chmod":  unix.Chmod(p, 0o777),
		"unlink": unix.Unlink(p),
		"mkdir":  unix.Mkdir(p+"2", 0o777),
		"rename": unix.Rename(p, p+"2"),
	} {
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s below the overlay: %v", name, err)
		}
	}
}

func TestHugeDirectory(t *testing.T) {
	const files = 20_000 // TestDirectoryOf100000Entries has more
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	blob := src.Blob(t, "x").Proto()
	m := &repb.Directory{}
	for i := range files {
		m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("file-%06d", i), Digest: blob})
	}
	r := openRoot(t, f, RootSpec{Digest: src.Add(t, m), Source: src})
	for range 2 { // the second time from the kernel's cache
		names, err := os.ReadDir(r.Path())
		if err != nil || len(names) != files || names[files-1].Name() != "file-019999" {
			t.Fatalf("listed %d names, %v", len(names), err)
		}
	}
	if _, err := os.ReadFile(filepath.Join(r.Path(), "file-014321")); err != nil {
		t.Error(err)
	}
}

func TestLongNames(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	long := strings.Repeat("ü", 127) + "x"
	root := src.Tree(t, "d/"+long)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if _, err := os.ReadFile(filepath.Join(r.Path(), "d", long)); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(filepath.Join(r.Path(), "d")); err != nil || names[0].Name() != long {
		t.Errorf("listed %v, %v", names, err)
	}
	_, err := os.Lstat(filepath.Join(r.Path(), "d", long+"y"))
	if !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("a name of 256 bytes: %v", err)
	}
}

// deepTree returns a path of about size bytes and the tree that has only it.
func deepTree(t *testing.T, src *vfstest.Source, size int) (string, digest.Digest) {
	name := strings.Repeat("n", 200)
	depth := size / (len(name) + 1)
	d := src.Tree(t, "file")
	for range depth {
		d = src.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: name, Digest: d.Proto()}}})
	}
	return strings.Repeat(name+"/", depth) + "file", d
}

func TestDeepPath(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	p, root := deepTree(t, src, 4000)
	var seen readHook
	r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
	t.Chdir(r.Path()) // the whole path would be longer than the kernel takes
	if got, err := os.ReadFile(p); err != nil || string(got) != "content of file" {
		t.Errorf("read: %q, %v", got, err)
	}
	if k := seen.kinds()[p]; k != File {
		t.Errorf("the path was reported as %s", k)
	}
	if in, ok := r.Unchanged(p); !ok || in.Kind != File {
		t.Errorf("unchanged: %v, %t", in, ok)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(p), "out"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if _, ok := r.Written(filepath.Join(filepath.Dir(p), "out")); !ok {
		t.Error("an output at a deep path is not found")
	}
}

// TestSameDirectoryManyTimes makes a tree of 2^64 directories and 2^64 files
// out of 65 messages: nothing may ever expand it.
func TestSameDirectoryManyTimes(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	d := src.Tree(t, "file")
	for range 64 {
		d = src.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{
			{Name: "0", Digest: d.Proto()}, {Name: "1", Digest: d.Proto()},
		}})
	}
	r := openRoot(t, f, RootSpec{Digest: d, Source: src})
	for _, n := range []int64{0, 1, 0x0123456789abcdef} {
		bits := fmt.Sprintf("%064s", big.NewInt(n).Text(2))
		p := filepath.Join(r.Path(), strings.Join(strings.Split(bits, ""), "/"), "file")
		if got, err := os.ReadFile(p); err != nil || string(got) != "content of file" {
			t.Errorf("path %x: %q, %v", n, got, err)
		}
	}
	if got := r.Stats().DirectoriesRead; got > 3*65 {
		t.Errorf("%d directories were read", got)
	}
}

func TestManySiblingsOfOneDigest(t *testing.T) {
	const width = 50_000
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	child := src.Tree(t, "file").Proto()
	m := &repb.Directory{Directories: make([]*repb.DirectoryNode, width)}
	for i := range m.Directories {
		m.Directories[i] = &repb.DirectoryNode{Name: fmt.Sprintf("%07d", i), Digest: child}
	}
	d := digest.Of(digest.SHA256, []byte("not its digest, which would take long"))
	src.Dirs[d] = m
	r := openRoot(t, f, RootSpec{Digest: d, Source: src})
	for _, name := range []string{"0000000", "0049999"} {
		if _, err := os.ReadFile(filepath.Join(r.Path(), name, "file")); err != nil {
			t.Error(err)
		}
	}
	if got := r.Stats(); got.DirectoriesRead != 3 || got.FilesRead != 2 {
		t.Errorf("stats: %+v", got)
	}
	if r.inputs.Nodes() > 10 {
		t.Errorf("%d nodes were made", r.inputs.Nodes())
	}
}
