package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

var oldTime = time.Unix(tree.DefaultMTime, 0)

// linkedWays runs a test with hard links below an overlay and without one.
func linkedWays(t *testing.T, test func(t *testing.T, f *FS)) {
	t.Run("overlay", func(t *testing.T) {
		f := openFS(t, Options{Method: HardLink})
		if !f.means.overlay() {
			t.Fatal("there is no overlay")
		}
		test(t, f)
	})
	t.Run("bare", func(t *testing.T) { test(t, openBare(t, Options{})) })
}

// openBare opens an FS that uses hard links alone.
func openBare(t testing.TB, o Options) *FS {
	t.Helper()
	o.Method, o.DisableOverlay = HardLink, true
	return openFS(t, o)
}

func TestLinkedInputs(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		content := src.Blob(t, "shared")
		file := func(name string, exec bool, p *repb.NodeProperties) *repb.FileNode {
			return &repb.FileNode{Name: name, Digest: content.Proto(), IsExecutable: exec, NodeProperties: p}
		}
		when := time.Unix(1700000000, 5)
		sub := src.Add(t, &repb.Directory{Files: []*repb.FileNode{
			file("plain", false, nil), file("tool", true, nil),
			file("odd", false, &repb.NodeProperties{UnixMode: wrapperspb.UInt32(0o640), Mtime: timestamppb.New(when)}),
		}, Symlinks: []*repb.SymlinkNode{{Name: "to", Target: "no/where"}}})
		empty := src.Add(t, &repb.Directory{})
		root := src.Add(t, &repb.Directory{
			Files:       []*repb.FileNode{file("plain", false, nil)},
			Directories: []*repb.DirectoryNode{{Name: "a", Digest: sub.Proto()}, {Name: "b", Digest: sub.Proto()}, {Name: "none", Digest: empty.Proto()}},
		})
		before, err := os.Stat(src.Blobs[content])
		if err != nil {
			t.Fatal(err)
		}
		r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: func(p string, _ Kind) { t.Errorf("%s was reported", p) }})
		want := []string{".", "a", "a/odd", "a/plain", "a/to", "a/tool", "b", "b/odd", "b/plain", "b/to", "b/tool", "none", "plain"}
		if got := vfstest.Walk(t, r.Path()); !slices.Equal(got, want) {
			t.Errorf("the root has %q", got)
		}
		for p, as := range map[string]struct {
			mode  os.FileMode
			mtime time.Time
		}{
			"plain": {0o444, oldTime}, "a/tool": {0o555, oldTime}, "b/odd": {0o640, when},
			"none": {os.ModeDir | 0o755, oldTime}, "a": {os.ModeDir | 0o755, oldTime},
			"a/to": {os.ModeSymlink | 0o777, oldTime},
		} {
			st, err := os.Lstat(filepath.Join(r.Path(), p))
			if err != nil || st.Mode() != as.mode || !st.ModTime().Equal(as.mtime) {
				t.Errorf("%s: %v, mode %v and time %v, want %v and %v", p, err, st.Mode(), st.ModTime(), as.mode, as.mtime)
			}
		}
		if got := mustRead(t, filepath.Join(r.Path(), "b/tool")); string(got) != "shared" {
			t.Errorf("b/tool: %q", got)
		}
		after, err := os.Stat(src.Blobs[content])
		if err != nil || after.Mode() != before.Mode() || after.Sys() == nil || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("the blob itself: %v, %v, %v", after.Mode(), after.ModTime(), err)
		}
		again := openRoot(t, f, RootSpec{Name: "again", Digest: root, Source: src})
		if got := vfstest.Walk(t, again.Path()); !slices.Equal(got, want) {
			t.Errorf("the second root has %q", got)
		}
		if n := src.Calls(content); n != 1 { // for all files of the first root
			t.Errorf("the blob was opened %d times", n)
		}
		if s := r.Stats(); s != (Stats{}) || r.Err() != nil || r.Stalled() != 0 || r.Intact() != nil {
			t.Errorf("%+v, %v, %v, %v", s, r.Err(), r.Stalled(), r.Intact())
		}
	})
}

// TestLinkedOutputs: inputs and outputs are distinguished as with FUSE.
func TestLinkedOutputs(t *testing.T) {
	linkedWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		root := src.Tree(t, "in/file", "in/tool!", "in/gone", "in/ln -> file")
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		at := func(p string) string { return filepath.Join(r.Path(), p) }
		for _, err := range []error{
			os.Rename(at("in/tool"), at("moved")),
			os.Remove(at("in/gone")),
			os.WriteFile(at("new"), []byte("new"), 0o600),
			os.WriteFile(at("two names"), []byte("new"), 0o600),
			os.Link(at("two names"), at("second")),
			os.Rename(at("new"), at("in/new")),
			os.Remove(at("in/file")),
			os.WriteFile(at("in/file"), []byte("content of in/file"), 0o444), // as it was, but another
			os.Symlink("in", at("dir")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for p, want := range map[string]Input{
			"moved": {File, src.Find(t, root, "in/tool"), true, ""},
			"in/ln": {Symlink, digest.Digest{}, false, "file"},
		} {
			if got, ok := r.Unchanged(p); !ok || got != want {
				t.Errorf("%s: %+v, %t", p, got, ok)
			}
			if at, ok := r.Written(p); ok {
				t.Errorf("%s was written, at %s", p, at)
			}
		}
		for _, p := range []string{"in", "in/file", "in/new", "in/gone", "second", "dir", "dir/ln", "no", "", "..", "a//b"} {
			if in, ok := r.Unchanged(p); ok {
				t.Errorf("%q is an input: %+v", p, in)
			}
		}
		for p, content := range map[string]string{"in/new": "new", "in/file": "content of in/file"} {
			if at, ok := r.Written(p); !ok || string(mustRead(t, at)) != content {
				t.Errorf("%s: at %q, %t", p, at, ok)
			}
		}
		for _, p := range []string{"second", "two names", "dir", "dir/new", "in", "in/gone", "..", ""} {
			if at, ok := r.Written(p); ok {
				t.Errorf("%q was written, at %s", p, at)
			}
		}
		if err := r.Intact(); err != nil {
			t.Error(err)
		}
	})
}

// TestInputChangedInPlace: without an overlay both roots that share the file
// fail, and the next one has it as it should be.
func TestInputChangedInPlace(t *testing.T) {
	for name, change := range map[string]func(p string) error{
		"written":   func(p string) error { return os.WriteFile(p, []byte("harmed of file"), 0) },
		"truncated": func(p string) error { return os.Truncate(p, 0) },
		"mode":      func(p string) error { return os.Chmod(p, 0o755) },
		"time":      func(p string) error { return os.Chtimes(p, time.Now(), time.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zapcore.WarnLevel)
			f := openBare(t, Options{Logger: zap.New(core)})
			src := vfstest.NewSource(t)
			root := src.Tree(t, "a/file", "b")
			open := func(name string) *Root {
				return openRoot(t, f, RootSpec{Name: name, Digest: root, Source: src})
			}
			r, neighbour := open("r"), open("neighbour")
			if err := change(filepath.Join(r.Path(), "a/file")); err != nil {
				t.Fatal(err)
			}
			if _, ok := r.Unchanged("a/file"); ok {
				t.Error("the changed file passes for the input")
			}
			next := open("next")
			for _, r := range []*Root{r, neighbour, r} {
				err := r.Intact()
				if !errors.Is(err, ErrInputChanged) || !strings.Contains(err.Error(), "a/file") {
					t.Errorf("%s: %v", r.spec.Name, err)
				}
			}
			if err := next.Intact(); err != nil {
				t.Error(err)
			}
			p := filepath.Join(next.Path(), "a/file")
			if st, err := os.Stat(p); err != nil || st.Mode() != 0o444 || string(mustRead(t, p)) != "content of file" {
				t.Errorf("the next root: %v, %v", st, err)
			}
			if got := mustRead(t, src.Blobs[src.Find(t, root, "a/file")]); string(got) != "content of file" {
				t.Errorf("the store holds %q", got)
			}
			if n := logs.FilterMessageSnippet("changed an input").Len(); n != 1 {
				t.Errorf("said %d times", n)
			}
		})
	}
}

// TestOverlayKeepsLinkedInputs: with an overlay the action may write to an input.
func TestOverlayKeepsLinkedInputs(t *testing.T) {
	f := openFS(t, Options{Method: HardLink})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "file")
	r, other := openRoot(t, f, RootSpec{Name: "r", Digest: root, Source: src}), openRoot(t, f, RootSpec{Name: "o", Digest: root, Source: src})
	if err := os.WriteFile(filepath.Join(r.Path(), "file"), []byte("mine"), 0); err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, filepath.Join(other.Path(), "file")); string(got) != "content of file" {
		t.Errorf("the other root has %q", got)
	}
	if err := errors.Join(r.Intact(), other.Intact()); err != nil {
		t.Error(err)
	}
	if p, ok := r.Written("file"); !ok || string(mustRead(t, p)) != "mine" {
		t.Errorf("written at %q", p)
	}
}

func TestReservedNames(t *testing.T) {
	f := openBare(t, Options{})
	src := vfstest.NewSource(t)
	for _, name := range []string{trashName, linksName, plainName} {
		if _, err := f.NewRoot(t.Context(), RootSpec{Name: name, Digest: src.Tree(t, "x"), Source: src}); err == nil {
			t.Errorf("%s is a root", name)
		}
	}
}
