package vfs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// looks gathers the calls of OnLook.
type looks struct {
	mu   sync.Mutex
	seen map[string]tree.Look
}

func (c *looks) hook(path string, l tree.Look) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]tree.Look{}
	}
	c.seen[path] |= l
}

func (c *looks) all() map[string]tree.Look {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}

// TestLooks does one thing to a new root and wants to be told of all that it shows
// of the inputs, and of nothing else.
func TestLooks(t *testing.T) {
	const up, inside, through = tree.LookUp, tree.LookInside, tree.LookThrough
	type want = map[string]tree.Look
	for _, c := range []struct {
		name string
		do   func(at func(string) string, r *Root) error
		want want
	}{
		{"nothing", func(func(string) string, *Root) error { return nil }, want{}},
		{"stat", func(at func(string) string, _ *Root) error {
			_, err := os.Lstat(at("d/e/file"))
			return err
		}, want{"d": up, "d/e": up, "d/e/file": up}},
		{"absent", func(at func(string) string, _ *Root) error {
			_, err := os.Lstat(at("d/no"))
			_, err2 := os.Lstat(at("no/file"))
			if !errors.Is(err, os.ErrNotExist) || !errors.Is(err2, os.ErrNotExist) {
				return errors.Join(err, err2, errors.New("found what is not there"))
			}
			return nil
		}, want{"d": up, "d/no": up, "no": up}},
		{"open", func(at func(string) string, _ *Root) error {
			_, err := os.ReadFile(at("d/file"))
			return err
		}, want{"d": up, "d/file": up | inside}},
		{"list", func(at func(string) string, _ *Root) error {
			return listNames(at("d"))
		}, want{"d": up | through}},
		{"list the root", func(at func(string) string, _ *Root) error {
			return listNames(at("."))
		}, want{"": through}},
		{"list and stat", func(at func(string) string, _ *Root) error {
			_, err := os.Lstat(at("d/file"))
			return errors.Join(listNames(at("d")), err)
		}, want{"d": up | through, "d/file": up}},
		{"readlink", func(at func(string) string, _ *Root) error {
			_, err := os.Readlink(at("link"))
			return err
		}, want{"link": up | inside}},
		{"follow", func(at func(string) string, _ *Root) error {
			_, err := os.Stat(at("link"))
			return err
		}, want{"link": up | inside, "d": up, "d/file": up}},
		{"chmod", func(at func(string) string, _ *Root) error {
			return os.Chmod(at("d/file"), 0o755)
		}, want{"d": up, "d/file": up}},
		{"chmod, then read", func(at func(string) string, _ *Root) error {
			err := os.Chmod(at("d/file"), 0o755)
			_, err2 := os.ReadFile(at("d/file"))
			return errors.Join(err, err2)
		}, want{"d": up, "d/file": up | inside}},
		{"append", func(at func(string) string, _ *Root) error {
			return appendTo(at("d/file"))
		}, want{"d": up, "d/file": up | inside}},
		{"read what was moved", func(at func(string) string, _ *Root) error {
			err := os.Rename(at("d"), at("moved"))
			_, err2 := os.ReadFile(at("moved/e/file"))
			_, err3 := os.Lstat(at("moved/no"))
			if errors.Is(err3, os.ErrNotExist) {
				err3 = nil
			}
			return errors.Join(err, err2, err3)
		}, want{"d": up, "moved": up, "d/e": up, "d/e/file": up | inside, "d/no": up}},
		{"list what was moved", func(at func(string) string, _ *Root) error {
			return errors.Join(os.Rename(at("d/e"), at("d/moved")), listNames(at("d/moved")))
		}, want{"d": up, "d/e": up | through, "d/moved": up}},
		{"remove a directory", func(at func(string) string, _ *Root) error {
			if err := os.Remove(at("d/e")); err == nil {
				return errors.New("removed a directory that is not empty")
			}
			return nil
		}, want{"d": up, "d/e": up | through}},
		{"create", func(at func(string) string, _ *Root) error {
			return os.WriteFile(at("d/new"), nil, 0o666)
		}, want{"d": up, "d/new": up}},
		{"unchanged file", func(_ func(string) string, r *Root) error {
			return isUnchanged(r, "d/file")
		}, want{"d/file": inside}},
		{"unchanged directory", func(_ func(string) string, r *Root) error {
			return isUnchanged(r, "d/e")
		}, want{"d/e": inside}},
		{"unchanged and moved", func(at func(string) string, r *Root) error {
			return errors.Join(os.Rename(at("d"), at("moved")), isUnchanged(r, "moved/e/file"))
		}, want{"d": up, "moved": up, "d/e/file": inside}},
		{"unchanged but for its mode", func(at func(string) string, r *Root) error {
			return errors.Join(os.Chmod(at("d/e/file"), 0o755), isUnchanged(r, "d/e/file"))
		}, want{"d": up, "d/e": up, "d/e/file": up | inside}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, f *FS) {
				src := vfstest.NewSource(t)
				root := src.Tree(t, "d/file", "d/other", "d/e/file", "d/e/other", "other/file", "link -> d/file")
				var got looks
				r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnLook: got.hook})
				if err := c.do(func(p string) string { return filepath.Join(r.Path(), p) }, r); err != nil {
					t.Error(err)
				}
				if got := got.all(); !maps.Equal(got, c.want) {
					t.Errorf("looks: %v, want %v", got, c.want)
				}
			})
		})
	}
}

// listNames lists a directory and asks nothing about what is in it.
func listNames(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	_, err = f.Readdirnames(-1)
	return errors.Join(err, f.Close())
}

func appendTo(path string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("more")
	return errors.Join(err, f.Close())
}

func isUnchanged(r *Root, path string) error {
	if _, ok := r.Unchanged(path); !ok {
		return errors.New(path + " counts as changed")
	}
	return nil
}

// TestLooksKeepImagesAway wants a root that is looked at closely to have no images, in
// which lookups go unseen.
func TestLooksKeepImagesAway(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, toolchain("sdk")...)
	learn(t, f, src, func(path string) { describe(t, path) }, root)
	var got looks
	for name, hook := range map[string]func(string, tree.Look){"with-images": nil, "without": got.hook} {
		r := openRoot(t, f, RootSpec{Name: name, Digest: root, Source: src, OnLook: hook})
		if shows := imagesOf(r) > 0; shows != (hook == nil) {
			t.Errorf("%s: the root shows images: %v", name, shows)
		}
		if _, err := os.Lstat(filepath.Join(r.Path(), "sdk/bin/tool")); err != nil {
			t.Error(err)
		}
	}
	if got := got.all(); got["sdk/bin/tool"] != tree.LookUp {
		t.Errorf("looks: %v", got)
	}
}
