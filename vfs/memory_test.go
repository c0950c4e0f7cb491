package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestUpperMemory writes to roots whose writable layer is in memory: nothing
// gets to the disk, the bound is kept, and outputs are found as ever.
func TestUpperMemory(t *testing.T) {
	const bound = 1 << 20
	f := openFS(t, Options{UpperMemory: bound})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/file", "b")
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	at := func(p string) string { return filepath.Join(r.Path(), p) }
	for _, err := range []error{
		os.WriteFile(at("a/out"), []byte("made"), 0o644), os.Rename(at("b"), at("a/moved")), os.Remove(at("a/file")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	p, ok := r.Written("a/out")
	var st unix.Statfs_t
	if err := unix.Statfs(p, &st); !ok || err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Errorf("the output is at %q on %x, %v", p, st.Type, err)
	}
	if in, ok := r.Unchanged("a/moved"); !ok || in.Digest != src.Find(t, root, "b") {
		t.Errorf("moved: %+v, %v", in, ok)
	}
	if left, err := os.ReadDir(f.upperDir); len(left) > 0 || err != nil {
		t.Errorf("on the disk: %v, %v", left, err)
	}
	if bytes, files, full := r.MemoryLeft(); full || bytes > bound || files == 0 {
		t.Error("it is full of a few bytes")
	}
	if err := os.WriteFile(at("large"), []byte(strings.Repeat("x", bound+1)), 0o644); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("more than the bound: %v", err)
	}
	if _, _, full := r.MemoryLeft(); !full {
		t.Error("it is not full after a write that failed for it")
	}
	// The next root has a bound of its own.
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	next := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if err := os.WriteFile(filepath.Join(next.Path(), "large"), []byte(strings.Repeat("x", bound/2)), 0o644); err != nil {
		t.Error(err)
	}
}
