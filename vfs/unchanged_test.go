package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// act is an action's operation on paths below its root.
type act func(root string) error

func on(p string, do func(path string) error) act {
	return func(root string) error { return do(filepath.Join(root, p)) }
}

func chmod(p string, mode os.FileMode) act {
	return on(p, func(p string) error { return os.Chmod(p, mode) })
}

func write(p, content string) act {
	return on(p, func(p string) error { return os.WriteFile(p, []byte(content), 0o644) })
}
func remove(p string) act { return on(p, os.RemoveAll) }
func mkdir(p string) act {
	return on(p, func(p string) error { return os.MkdirAll(p, 0o755) })
}

func move(from, to string) act {
	return func(root string) error { return os.Rename(filepath.Join(root, from), filepath.Join(root, to)) }
}

func linkTo(from, to string) act {
	return func(root string) error { return os.Link(filepath.Join(root, from), filepath.Join(root, to)) }
}

func symlink(target, p string) act {
	return on(p, func(p string) error { return os.Symlink(target, p) })
}

func touch(p string) act {
	return on(p, func(p string) error { return os.Chtimes(p, time.Now(), time.Now()) })
}

func TestUnchanged(t *testing.T) {
	const changed = "changed"
	for name, c := range map[string]struct {
		acts []act
		// path → the input that it is, with "!" if it is executable now, or changed
		want map[string]string
	}{
		"nothing done": {nil, map[string]string{
			"a": "a", "a/b": "a/b", "a/b/file": "a/b/file", "a/tool": "a/tool!", "link": "link",
			"no": changed, "a/no": changed, "a/b/file/x": changed, "link/x": changed,
			"": changed, "/a": changed, "a/": changed, "a//b": changed, "a/./b": changed, "a/../a": changed,
		}},
		"only read": {
			[]act{on("a/b/file", func(p string) error { _, err := os.ReadFile(p); return err })},
			map[string]string{"a/b/file": "a/b/file"},
		},
		"sibling written": {[]act{write("a/b/new", "x")}, map[string]string{
			"a/b/new": changed, "a/b": changed, "a": changed, "a/b/file": "a/b/file", "c": "c",
		}},
		"written over with the same": {
			[]act{write("a/b/file", "content of file")},
			map[string]string{"a/b/file": changed},
		},
		"appended": {[]act{on("a/b/file", func(p string) error {
			f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }()
			_, err = f.WriteString("more")
			return err
		})}, map[string]string{"a/b/file": changed}},
		"truncated": {
			[]act{on("a/b/file", func(p string) error { return os.Truncate(p, 3) })},
			map[string]string{"a/b/file": changed},
		},
		"made executable":     {[]act{chmod("a/b/file", 0o755)}, map[string]string{"a/b/file": "a/b/file!"}},
		"made not executable": {[]act{chmod("a/tool", 0o644)}, map[string]string{"a/tool": "a/tool"}},
		"touched":             {[]act{touch("a/tool")}, map[string]string{"a/tool": "a/tool!"}},
		"chmod, then written": {
			[]act{chmod("a/b/file", 0o755), write("a/b/file", "x")},
			map[string]string{"a/b/file": changed},
		},
		"removed": {[]act{remove("a/b/file")}, map[string]string{"a/b/file": changed, "a/b": changed}},
		"removed and made again": {
			[]act{remove("a/b/file"), write("a/b/file", "content of file")},
			map[string]string{"a/b/file": changed},
		},
		"file moved": {[]act{move("a/b/file", "c/moved")}, map[string]string{
			"a/b/file": changed, "c/moved": "a/b/file", "c/other": "c/other",
		}},
		"file moved over an input": {[]act{move("a/b/file", "c/other")}, map[string]string{"c/other": "a/b/file"}},
		"directory renamed": {[]act{move("a/b", "a/renamed")}, map[string]string{
			"a/b/file": changed, "a/b": changed, "a/renamed/file": "a/b/file", "a/renamed": changed,
		}},
		"directory moved": {[]act{move("a/b", "c/sub")}, map[string]string{"c/sub/file": "a/b/file"}},
		"directory in a moved directory moved": {
			[]act{move("a", "c/a2"), move("c/a2/b", "c/a2/b2"), move("c/a2/b2/file", "f")},
			map[string]string{"c/a2/tool": "a/tool!", "c/a2/b2/file": changed, "f": "a/b/file", "a/tool": changed},
		},
		"directory replaced": {
			[]act{remove("a"), mkdir("a/b"), write("a/b/file", "x")},
			map[string]string{"a/b/file": changed, "a/tool": changed, "a/b": changed},
		},
		"directory replaced, nothing in it": {
			[]act{remove("a"), mkdir("a")},
			map[string]string{"a/b/file": changed, "a/tool": changed, "a": changed},
		},
		"directory moved onto the place of another": {
			[]act{remove("a/b"), move("c", "a/b")},
			map[string]string{"a/b/other": "c/other", "a/b/file": changed},
		},
		"directories swapped": {
			[]act{move("a", "t"), move("c", "a"), move("t", "c")},
			map[string]string{"a/other": "c/other", "c/tool": "a/tool!", "c/b/file": "a/b/file", "a/tool": changed},
		},
		"file replaced by directory": {
			[]act{remove("c/other"), mkdir("c/other")},
			map[string]string{"c/other": changed, "c/other/x": changed},
		},
		"directory replaced by symlink": {
			[]act{remove("a"), symlink("c", "a")},
			map[string]string{"a": changed, "a/other": changed, "a/b/file": changed},
		},
		"hard link": {[]act{linkTo("a/b/file", "linked")}, map[string]string{
			"linked": "a/b/file", "a/b/file": "a/b/file",
		}},
		"symlink to input": {[]act{symlink("a/b/file", "s")}, map[string]string{"s": changed}},
		"output directories made": {
			[]act{mkdir("a/b"), mkdir("out/deep")},
			map[string]string{"a/b": "a/b", "a/b/file": "a/b/file", "out": changed},
		},
		"a character device 0:0 that is not a whiteout of an input": {
			[]act{write("x", ""), remove("x")}, map[string]string{"x": changed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := openFS(t, Options{})
			src := vfstest.NewSource(t)
			root := src.Tree(t, "a/b/file", "a/tool!", "c/other", "link -> a/b/file")
			r := openRoot(t, f, RootSpec{Digest: root, Source: src})
			for i, do := range c.acts {
				if err := do(r.Path()); err != nil {
					t.Fatalf("act %d: %v", i, err)
				}
			}
			for p, want := range c.want {
				in, ok := r.Unchanged(p)
				if want == changed {
					if ok {
						t.Errorf("%q is %+v, want changed", p, in)
					}
					continue
				}
				name, exec := strings.CutSuffix(want, "!")
				if name == "link" {
					if !ok || in != (Input{Kind: Symlink, Target: "a/b/file"}) {
						t.Errorf("%q is %+v, %t", p, in, ok)
					}
					continue
				}
				if !ok || in.Digest != src.Find(t, root, name) || in.Executable != exec {
					t.Errorf("%q is %+v, %t; want %s", p, in, ok, want)
				}
			}
		})
	}
}

func TestWritten(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "a/input", "a/moded", "b/appended"), Source: src})
	for _, do := range []act{
		write("a/new", "new"), write("out", "out"), chmod("a/moded", 0o755),
		on("b/appended", func(p string) error { return os.Truncate(p, 2) }),
		write("twice", "x"), linkTo("twice", "twice2"), symlink("out", "s"), symlink("a", "dirlink"),
		move("a", "moved"),
	} {
		if err := do(r.Path()); err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range map[string]string{
		"moved/new": "new", "out": "out", "b/appended": "co",
		"moved/input": "", "moved/moded": "", "a/new": "", "twice": "", "twice2": "", "s": "", "dirlink/new": "",
		"moved": "", "no": "", "out/x": "", "": "", "../out": "",
	} {
		host, ok := r.Written(p)
		if ok != (want != "") {
			t.Errorf("%q: %q, %t", p, host, ok)
		}
		if !ok {
			continue
		}
		if got, err := os.ReadFile(host); err != nil || string(got) != want {
			t.Errorf("%q holds %q, %v", p, got, err)
		}
		if strings.HasPrefix(host, r.Path()) {
			t.Errorf("%q is not in the writable layer", host)
		}
		if err := unix.Rename(host, filepath.Join(t.TempDir(), "adopted")); err != nil {
			t.Errorf("move %q away: %v", p, err)
		}
	}
}

// TestAttributesNeedNoContent changes attributes and names of inputs that are not local. overlayfs
// must not copy their content.
func TestAttributesNeedNoContent(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		root := src.Tree(t, "a/file", "b", "c")
		for _, p := range []string{"a/file", "b", "c"} {
			src.Fail(src.Find(t, root, p), errors.New("nobody has it"))
		}
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		at := func(p string) string { return filepath.Join(r.Path(), p) }
		for _, err := range []error{
			os.Chmod(at("a/file"), 0o755), os.Rename(at("b"), at("a/moved")), os.Rename(at("a"), at("d")),
			os.Chtimes(at("c"), time.Time{}, time.Unix(1, 0)),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		for was, is := range map[string]string{"a/file": "d/file", "b": "d/moved", "c": "c"} {
			if n := src.Calls(src.Find(t, root, was)); n != 0 {
				t.Errorf("%s was asked for %d times", was, n)
			}
			if in, ok := r.Unchanged(is); !ok || in.Digest != src.Find(t, root, was) || in.Executable != (is == "d/file") {
				t.Errorf("%s: %+v, %v", is, in, ok)
			}
		}
		if s := r.Stats(); s.FilesRead != 0 {
			t.Errorf("%d files read", s.FilesRead)
		}
		if err := r.Err(); err != nil {
			t.Error(err)
		}
	})
}
