package erofs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// overlay mounts an image with a folder of data below it, and returns the mount and its upper
// folder.
func overlay(t testing.TB, image []byte, objects string) (merged, upper string) {
	t.Helper()
	lower := mountImage(t, image)
	tmp := t.TempDir()
	upper = filepath.Join(tmp, "upper")
	work := filepath.Join(tmp, "work")
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged = mount(t, "overlay", "overlay", 0, fmt.Sprintf(
		"lowerdir=%s::%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=on,index=off,xino=off",
		lower, objects, upper, work))
	return merged, upper
}

// TestOverlay uses an image below an overlay, which is its purpose.
func TestOverlay(t *testing.T) {
	objects := t.TempDir()
	object := func(content string) Entry {
		path := fmt.Sprintf("/sha256/%02x/%x-%d", content[0], content, len(content))
		full := objects + path
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o444); err != nil {
			t.Fatal(err)
		}
		return file("", int64(len(content)), path)
	}
	as := func(name string, mode uint32, e Entry) Entry {
		e.Name, e.Mode = name, unix.S_IFREG|mode
		return e
	}
	one, two := object("one"), object("and two")
	gone := file("gone", 4, "/sha256/00/gone")
	root := dir("", as("a", 0o444, one), as("tool", 0o555, two), gone, file("empty", 0, ""), link("link", "dir/a"),
		dir("dir", as("a", 0o444, one), as("b", 0o644, two), dir("sub", as("c", 0o444, one))))
	merged, upper := overlay(t, write(t, root, Options{Epoch: epoch}), objects)
	at := func(path string) string { return filepath.Join(merged, path) }
	content := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(at(path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, want %q: %v", path, got, want, err)
		}
	}

	for path, want := range map[string]string{
		"a": "one", "tool": "and two", "empty": "", "link": "one", "dir/b": "and two", "dir/sub/c": "one",
	} {
		content(path, want)
	}
	if _, err := os.ReadFile(at("gone")); err == nil {
		t.Error("read what has no data")
	}
	info, err := os.Stat(at("tool"))
	if err != nil || info.Mode() != 0o555 || info.Size() != 7 || !info.ModTime().Equal(epoch) {
		t.Errorf("tool: %v, %v", info, err)
	}

	if err := os.Chmod(at("dir/a"), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.Rename(at("dir"), at("moved")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(at("moved/b"), []byte("new"), 0o644); err != nil {
		t.Error(err)
	}
	if err := os.Remove(at("empty")); err != nil {
		t.Error(err)
	}
	f, err := os.OpenFile(at("a"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(" more"); err != nil {
		t.Error(err)
	}
	f.Close()
	for path, want := range map[string]string{
		"a": "one more", "moved/a": "one", "moved/b": "new", "moved/sub/c": "one", "tool": "and two",
	} {
		content(path, want)
	}
	if info, err := os.Stat(at("moved/a")); err != nil || info.Mode() != 0o600 || !info.ModTime().Equal(epoch) {
		t.Errorf("after chmod: %v, %v", info, err)
	}
	// The chmod copied no data, and the store is as before.
	if got, err := os.ReadFile(filepath.Join(upper, "moved/a")); err != nil || string(got) != "\x00\x00\x00" {
		t.Errorf("upper file after chmod: %q, %v", got, err)
	}
	for e, want := range map[string]string{one.Redirect: "one", two.Redirect: "and two"} {
		if got, err := os.ReadFile(objects + e); err != nil || string(got) != want {
			t.Errorf("object %s: %q, %v", e, got, err)
		}
	}
	if _, err := os.Stat(at("dir")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("old name: %v", err)
	}
}

// TestOpaque: overlayfs looks for names in an opaque directory in no layer below its image, and does
// not show its attribute.
func TestOpaque(t *testing.T) {
	image := mountImage(t, write(t, dir("", dir("part", opaque(dir("all", file("a", 0, ""), dir("sub"))), dir("open", dir("sub"))),
		opaque(dir("whole", dir("sub", file("overlay.redirect", 0, ""))))), Options{Epoch: epoch}))
	below, tmp := t.TempDir(), t.TempDir()
	for _, d := range []string{"part/all/sub/more", "part/all/other", "part/open/sub/more", "part/beside", "whole/sub/more", "whole/x"} {
		if err := os.MkdirAll(filepath.Join(below, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	upper, work := filepath.Join(tmp, "upper"), filepath.Join(tmp, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("lowerdir=%s:%s,upperdir=%s,workdir=%s,redirect_dir=on,metacopy=on,index=off,xino=off", image, below, upper, work)
	check := func(at string, want ...string) {
		t.Helper()
		var got []string
		err := filepath.WalkDir(at, func(path string, _ os.DirEntry, err error) error {
			if rel, _ := filepath.Rel(at, path); err == nil && rel != "." {
				got = append(got, rel)
			}
			var names [256]byte
			if n, err := unix.Llistxattr(path, names[:]); err != nil || n > 0 {
				t.Errorf("%s shows the attributes %q: %v", path, names[:n], err)
			}
			if n, err := unix.Lgetxattr(path, "trusted.overlay.opaque", names[:]); err == nil {
				t.Errorf("%s shows the attribute as %q", path, names[:n])
			}
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, want %q: %v", got, want, err)
		}
	}
	at := mount(t, "overlay", "overlay", 0, options)
	check(at, "part", "part/all", "part/all/a", "part/all/sub", "part/beside", "part/open", "part/open/sub", "part/open/sub/more",
		"whole", "whole/sub", "whole/sub/overlay.redirect")
	for _, err := range []error{
		os.Mkdir(filepath.Join(at, "part/all/new"), 0o755), os.Rename(filepath.Join(at, "whole/sub"), filepath.Join(at, "moved")),
		os.Rename(filepath.Join(at, "part/open"), filepath.Join(at, "part/opened")), os.Mkdir(filepath.Join(at, "whole/sub"), 0o755),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"moved", "moved/overlay.redirect", "part", "part/all", "part/all/a", "part/all/new", "part/all/sub", "part/beside",
		"part/opened", "part/opened/sub", "part/opened/sub/more", "whole", "whole/sub",
	}
	check(at, want...)
	if _, err := unix.Lgetxattr(filepath.Join(upper, "part/all"), "trusted.overlay.opaque", nil); !errors.Is(err, unix.ENODATA) {
		t.Errorf("the copy of an opaque directory is marked: %v", err)
	}
	// The kernel has all of it in memory; another mount looks again.
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	check(at, want...)
}
