package erofs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
