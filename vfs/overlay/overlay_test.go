package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

func TestStack(t *testing.T) {
	for want, s := range map[string]Stack{
		"/a":                {Folders: []string{"/a"}},
		"/a:/b":             {Folders: []string{"/a", "/b"}},
		`/a\,\:\\b::/c::/d`: {Folders: []string{`/a,:\b`}, Data: []string{"/c", "/d"}},
	} {
		if got := s.String(); got != want {
			t.Errorf("%+v is %q, want %q", s, got, want)
		}
	}
}

// inputs makes a plain folder of the files "dir/file" and "dir/written", with the Inputs that
// describe it.
func inputs(t *testing.T) (dir string, in Inputs) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "inputs")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "dir"), 0o755),
		os.WriteFile(filepath.Join(dir, "dir", "file"), []byte("content"), 0o444),
		os.WriteFile(filepath.Join(dir, "dir", "written"), []byte("content"), 0o644)); err != nil {
		t.Fatal(err)
	}
	known := map[digest.Digest]*tree.Directory{}
	add := func(m *repb.Directory) digest.Digest {
		d, b, err := digest.OfMessage(digest.SHA256, m)
		if err != nil {
			t.Fatal(err)
		}
		if known[d], err = tree.Parse(digest.SHA256, b); err != nil {
			t.Fatal(err)
		}
		return d
	}
	content := digest.Of(digest.SHA256, []byte("content")).Proto()
	below := add(&repb.Directory{Files: []*repb.FileNode{{Name: "file", Digest: content}, {Name: "written", Digest: content}}})
	root := add(&repb.Directory{Directories: []*repb.DirectoryNode{{Name: "dir", Digest: below.Proto()}}})
	return dir, Inputs{Root: root, Directory: func(d digest.Digest) (*tree.Directory, error) {
		if dir := known[d]; dir != nil {
			return dir, nil
		}
		return nil, os.ErrNotExist
	}}
}

// show mounts a layer over dir, which the test hides.
func show(t *testing.T, dir string, in Inputs) *Layer {
	t.Helper()
	own := t.TempDir()
	l := New(Options{
		Point: filepath.Join(own, "root"), Writable: filepath.Join(own, "writable"),
		Owner: folder.ProcessOwner(), Log: zaptest.NewLogger(t),
	})
	l.For(in, zaptest.NewLogger(t))
	if err := os.Mkdir(filepath.Join(own, "writable"), 0o755); err != nil {
		t.Fatal(err)
	}
	vfstest.Shown(t, l.Show(Stack{Folders: []string{dir}}))
	t.Cleanup(func() {
		if err := l.Hide(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// enter opens a folder until the test ends.
func enter(t *testing.T, l *Layer, names ...string) *Dir {
	t.Helper()
	p, err := l.Top()
	for _, name := range names {
		if err == nil {
			t.Cleanup(p.Close)
			p, err = p.Enter(name)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestLayer is about a layer alone, over a plain folder.
func TestLayer(t *testing.T) {
	dir, in := inputs(t)
	l := show(t, dir, in)
	at := func(p string) string { return filepath.Join(l.Path(), p) }
	if got, from, ok := enter(t, l).Unchanged("dir"); !ok || from != "dir" || got.Kind != tree.Dir {
		t.Errorf("an input: %+v from %q, %t", got, from, ok)
	}
	if err := errors.Join(os.Rename(at("dir/file"), at("moved")), os.Chmod(at("moved"), 0o755),
		os.WriteFile(at("dir/new"), []byte("new"), 0o644), os.WriteFile(at("dir/written"), []byte("other"), 0)); err != nil {
		t.Fatal(err)
	}
	if got, from, ok := enter(t, l).Unchanged("moved"); !ok || from != "dir/file" || !got.Executable || got.Digest.SizeBytes() != 7 {
		t.Errorf("a moved input: %+v from %q, %t", got, from, ok)
	}
	for _, names := range [][]string{{"dir"}, {"dir", "new"}, {"dir", "written"}, {"dir", "file"}, {"no"}} {
		last := len(names) - 1
		if got, _, ok := enter(t, l, names[:last]...).Unchanged(names[last]); ok {
			t.Errorf("%q is the input %+v", names, got)
		}
	}
	for _, name := range []string{"new", "written"} {
		path, ok := enter(t, l, "dir").Written(name)
		if is, err := os.Readlink(filepath.Dir(path)); !ok || err != nil || is != string(l.Upper())+"/dir" || filepath.Base(path) != name {
			t.Errorf("written: %q, %t, in %q, %v", path, ok, is, err)
		}
	}
	if path, ok := enter(t, l).Written("moved"); ok {
		t.Errorf("a moved input was written: %q", path)
	}
	if _, err := os.Stat(filepath.Join(dir, "dir", "file")); err != nil {
		t.Errorf("below the layer: %v", err)
	}
}

// TestMarksAmongOtherAttributes: a moved input is recognized among more attributes than one look
// lists, and a new file with attributes is no input.
func TestMarksAmongOtherAttributes(t *testing.T) {
	dir, in := inputs(t)
	l := show(t, dir, in)
	if err := errors.Join(os.Rename(filepath.Join(l.Path(), "dir/file"), filepath.Join(l.Path(), "moved")),
		os.WriteFile(filepath.Join(l.Path(), "new"), []byte("new"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		for _, name := range []string{"moved", "new"} {
			attribute := fmt.Sprintf("user.%d%s", i, strings.Repeat("x", 100))
			if err := unix.Setxattr(filepath.Join(l.Path(), name), attribute, nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		top := enter(t, l)
		if got, from, ok := top.Unchanged("moved"); !ok || from != "dir/file" {
			t.Errorf("a moved input with %d attributes: %+v from %q, %t", i+1, got, from, ok)
		}
		if path, ok := top.Written("new"); !ok {
			t.Errorf("a new file with %d attributes: %q, %t", i+1, path, ok)
		}
	}
}

// TestHideInUse removes the overlay while a process has a file of it open.
func TestHideInUse(t *testing.T) {
	dir, in := inputs(t)
	l := show(t, dir, in)
	f, err := os.Open(filepath.Join(l.Path(), "dir", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := l.Hide(); err != nil {
		t.Error(err)
	}
	if left, err := mounts.Below(filepath.Dir(l.Path())); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
