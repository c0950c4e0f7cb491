package vfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

const copyBytes = 256 << 10

// isCopied reports whether a root shows copies of its inputs.
func isCopied(r *Root) bool { return r.plain != nil && r.plain.copies != nil }

// openCopied makes a root of local inputs.
func openCopied(t *testing.T, f *FS, spec RootSpec) *Root {
	t.Helper()
	spec.Source.(*vfstest.Source).Know(t, spec.Digest)
	r := openRoot(t, f, spec)
	if !isCopied(r) {
		t.Fatal("the root does not show copies")
	}
	return r
}

// TestCopiedRootShowsTheSame compares with a root that is mounted, also for another owner.
func TestCopiedRootShowsTheSame(t *testing.T) {
	for name, owner := range map[string]*Owner{"own": nil, "other owner": {UID: 12345, GID: 54321}} {
		t.Run(name, func(t *testing.T) {
			src := vfstest.NewSource(t)
			root := src.Add(t, &repb.Directory{
				Files: []*repb.FileNode{
					{Name: "empty", Digest: src.Blob(t, "").Proto()},
					{Name: "large", Digest: src.Blob(t, strings.Repeat("large", 900)).Proto()},
					{Name: "n\u00e4me \n", Digest: src.Blob(t, "name").Proto()},
					{Name: "private", Digest: src.Blob(t, "private").Proto(), NodeProperties: &repb.NodeProperties{UnixMode: wrapperspb.UInt32(0o600)}},
					{Name: "open", Digest: src.Blob(t, "open").Proto(), NodeProperties: &repb.NodeProperties{UnixMode: wrapperspb.UInt32(0o777)}},
					{Name: "none", Digest: src.Blob(t, "none").Proto(), NodeProperties: &repb.NodeProperties{UnixMode: wrapperspb.UInt32(0)}},
					{Name: "old", Digest: src.Blob(t, "old").Proto(), NodeProperties: &repb.NodeProperties{Mtime: &timestamppb.Timestamp{Seconds: 1}}},
				},
				Directories: []*repb.DirectoryNode{
					{Name: "dir", Digest: src.Tree(t, "a", "b!", "c/d/e", "empty/", "up -> ../large", "dangling -> /nowhere").Proto()},
					{Name: "again", Digest: src.Tree(t, "a").Proto()},
					{Name: "more", Digest: src.Tree(t, "a").Proto()},
				},
				Symlinks: []*repb.SymlinkNode{{Name: "link", Target: "dir/b"}},
			})
			mounted := openRoot(t, openFS(t, Options{}), RootSpec{Digest: root, Source: src, Owner: owner})
			want := describeFiles(t, mounted.Path())
			f := openFS(t, Options{CopyBytes: copyBytes})
			r := openCopied(t, f, RootSpec{Digest: root, Source: src, Owner: owner})
			if got := describeFiles(t, r.Path()); !slices.Equal(got, want) {
				t.Errorf("copied:\n%s\nmounted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if left, err := mounts.Below(f.points.dir); err != nil || len(left) > 0 {
				t.Errorf("there are mounts: %v, %v", left, err)
			}
			dir := r.Path()
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the closed root is still there: %v", err)
			}
		})
	}
}

// describeFiles is describe without the links of directories, which file systems count in their own
// ways.
func describeFiles(t *testing.T, dir string) []string {
	list := describe(t, dir)
	for i, line := range list {
		list[i] = regexp.MustCompile(`^(.* 40\d{3} \d+:\d+) links \d+`).ReplaceAllString(line, "$1")
	}
	return list
}

// TestCopiesAreTheActionsOwn: nothing that an action does reaches the store or another root.
func TestCopiesAreTheActionsOwn(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a", "b", "dir/a")
	one := openCopied(t, f, RootSpec{Name: "one", Digest: root, Source: src})
	two := openCopied(t, f, RootSpec{Name: "two", Digest: root, Source: src})
	for _, p := range []string{"a", "dir/a"} { // one blob
		if err := errors.Join(os.Chmod(filepath.Join(one.Path(), p), 0o666), os.WriteFile(filepath.Join(one.Path(), p), []byte("changed by "+p), 0)); err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range map[string]string{"a": "changed by a", "dir/a": "changed by dir/a", "b": "content of b"} {
		if b, err := os.ReadFile(filepath.Join(one.Path(), p)); string(b) != want {
			t.Errorf("%s: %q, %v", p, b, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(two.Path(), "a")); string(b) != "content of a" {
		t.Errorf("in another root: %q, %v", b, err)
	}
	if b, ok := src.LocalBlob(src.Find(t, root, "a")); !ok {
		t.Errorf("in the store: %q", b)
	}
	for p, unchanged := range map[string]bool{"a": false, "dir": false, "b": true} {
		if in, ok := one.Unchanged(p); ok != unchanged || ok && in.Digest != src.Find(t, root, p) {
			t.Errorf("%s is said to be unchanged: %v, %v", p, in, ok)
		}
	}
	for _, p := range []string{"a", "b"} {
		if _, ok := one.Written(p); !ok {
			t.Errorf("%s cannot be moved away", p)
		}
	}
	one.Vacated()
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(openPlain(t, f, "three", nil).Path()); err != nil || len(left) > 0 {
		t.Errorf("a root without inputs has %v, %v", left, err)
	}
}

// TestCopiedReads wants the same reads reported as of a mounted root, except those of symlinks.
func TestCopiedReads(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "x/file", "x/link -> file", "y/file", "moved/file", "linked", "replaced", "run!", "unread/file", "listed/file", "stated", "sub/sub/file")
	var seen readHook
	used := map[digest.Digest]int{}
	r := openCopied(t, f, RootSpec{
		Digest: root, Source: src, OnFirstRead: seen.hook,
		OnCopyRead: func(d digest.Digest) { used[d]++ },
		OnBlob:     func(d digest.Digest) { t.Errorf("blob %s", d) },
	})
	if got, want := r.Stats(), (Stats{}); got != want {
		t.Errorf("before: %+v", got)
	}
	in := func(p string) string { return filepath.Join(r.Path(), p) }
	read := func(p string) error { _, err := os.ReadFile(in(p)); return err }
	_, listErr := os.ReadDir(in("listed"))
	_, statErr := os.Stat(in("stated"))
	runErr := exec.Command(in("run")).Run() // the kernel opens it before it sees that it is no program
	if !errors.Is(runErr, unix.ENOEXEC) {
		t.Fatal(runErr)
	}
	if err := errors.Join(
		read("x/link"), read("x/file"), read("x/file"), listErr, statErr,
		os.Rename(in("moved"), in("elsewhere")), read("elsewhere/file"),
		os.Link(in("linked"), in("name")), os.Remove(in("linked")), read("name"),
		os.WriteFile(in("new"), nil, 0o644), os.Rename(in("new"), in("replaced")), read("replaced"),
		read("sub/sub/file"),
	); err != nil {
		t.Fatal(err)
	}
	got := r.Stats()
	want := Stats{DirectoriesRead: 6, FilesRead: 5}
	for _, p := range []string{"x/file", "moved/file", "linked", "sub/sub/file", "run"} {
		want.BytesRead += src.Find(t, root, p).SizeBytes()
	}
	if got != want {
		t.Errorf("stats: %+v, want %+v", got, want)
	}
	wantKinds := []string{
		"directory ", "directory listed", "directory moved", "directory sub", "directory sub/sub", "directory x",
		"file linked", "file moved/file", "file run", "file sub/sub/file", "file x/file",
	}
	if kinds := seen.list(); !slices.Equal(kinds, wantKinds) {
		t.Errorf("reads:\n%s\nwant:\n%s", strings.Join(kinds, "\n"), strings.Join(wantKinds, "\n"))
	}
	for p, n := range seen.seen {
		if n != 1 {
			t.Errorf("%q was reported %d times", p, n)
		}
	}
	if len(used) != 3 || used[src.Find(t, root, "x/file")] != 3 {
		t.Errorf("used: %v", used)
	}
	if again := r.Stats(); again != want {
		t.Errorf("asked again: %+v", again)
	}
}

// TestNotCopied has the roots that are mounted all the same.
func TestNotCopied(t *testing.T) {
	paths := make([]string, 64)
	for i := range paths {
		paths[i] = fmt.Sprint("file", i)
	}
	for name, c := range map[string]struct {
		paths  []string
		change func(src *vfstest.Source, root digest.Digest, spec *RootSpec)
		copied bool
	}{
		"as many as may be": {paths: paths, copied: true},
		"one more":          {paths: append(paths, "more")},
		"one folder more":   {paths: append(paths, "dir/")},
		"one below":         {paths: append(paths[1:], "dir/file")},
		"missing directory": {paths: []string{"a/b"}, change: func(src *vfstest.Source, _ digest.Digest, _ *RootSpec) { src.Forget() }},
		"missing file": {paths: []string{"a/b", "c"}, change: func(src *vfstest.Source, root digest.Digest, _ *RootSpec) {
			delete(src.Blobs, src.Find(t, root, "a/b"))
		}},
		"damaged file": {paths: []string{"a", "b"}, change: func(src *vfstest.Source, root digest.Digest, _ *RootSpec) {
			file := src.Blobs[src.Find(t, root, "b")]
			if err := errors.Join(os.Chmod(file, 0o644), os.WriteFile(file, []byte("CONTENT OF b"), 0)); err != nil {
				t.Fatal(err)
			}
		}},
		"looks are to be told": {paths: []string{"a"}, change: func(_ *vfstest.Source, _ digest.Digest, spec *RootSpec) {
			spec.OnLook = func(string, Look) {}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFS(t, Options{CopyBytes: copyBytes})
			src := vfstest.NewSource(t)
			spec := RootSpec{Digest: src.Tree(t, c.paths...), Source: src}
			src.Know(t, spec.Digest)
			if c.change != nil {
				c.change(src, spec.Digest, &spec)
			}
			if got := isCopied(openRoot(t, f, spec)); got != c.copied {
				t.Errorf("copied: %t", got)
			}
		})
	}
	for name, o := range map[string]Options{
		"not wanted": {}, "memory": {CopyBytes: copyBytes, UpperMemory: 1 << 20}, "hard links": {CopyBytes: copyBytes, Method: HardLink},
	} {
		t.Run(name, func(t *testing.T) {
			src := vfstest.NewSource(t)
			root := src.Tree(t, "a")
			src.Know(t, root)
			if isCopied(openRoot(t, openFS(t, o), RootSpec{Digest: root, Source: src})) {
				t.Error("the root is copied")
			}
		})
	}
}

// TestUncopiableRoot: a root is mounted if the disk refuses its copy, and nothing of that is left.
func TestUncopiableRoot(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a")
	for range 20 { // longer than any path in a system call
		root = src.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: strings.Repeat("d", 255), Digest: root.Proto()}}})
	}
	src.Know(t, root)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if isCopied(r) {
		t.Fatal("the root is copied")
	}
	if names, err := os.ReadDir(r.Path()); err != nil || len(names) != 1 {
		t.Errorf("it shows %v, %v", names, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(f.plainDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestCopiedBytes: inputs are not what the action has written.
func TestCopiedBytes(t *testing.T) {
	f := openFS(t, Options{CopyBytes: copyBytes})
	src := vfstest.NewSource(t)
	r := openCopied(t, f, RootSpec{Digest: src.Tree(t, "a", "b", "c/d"), Source: src})
	before := r.WrittenBytes(1 << 30)
	if before > 4<<10 { // the root itself
		t.Errorf("%d bytes at first", before)
	}
	if err := os.WriteFile(filepath.Join(r.Path(), "out"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if n := r.WrittenBytes(1<<30) - before; n < 1<<20 || n > 2<<20 {
		t.Errorf("%d bytes after 1 MiB", n)
	}
	if n := r.WrittenBytes(100); n <= 100 {
		t.Errorf("%d bytes of at most 100", n)
	}
	if err := errors.Join(os.Remove(filepath.Join(r.Path(), "out")), os.Remove(filepath.Join(r.Path(), "a"))); err != nil {
		t.Fatal(err)
	}
	if n := r.WrittenBytes(1 << 30); n < 0 {
		t.Errorf("%d bytes after inputs were removed", n)
	}
}
