package folder

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestDeepFolders: a command can nest folders deeper than the maximum length of a path and the
// maximum number of descriptors. Files below must be found and removed.
func TestDeepFolders(t *testing.T) {
	const levels, bytes = 1000, 8 << 20
	top := filepath.Join(t.TempDir(), "top")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := unix.Open(top, unix.O_DIRECTORY, 0)
	for i := 0; i < levels && err == nil; i++ {
		err = unix.Mkdirat(dir, "moved-1", 0o755)
		if i == maxOpenFolders { // others exist with the name that it would get
			err = errors.Join(err, unix.Mkdirat(dir, "second", 0o755))
		}
		above := dir
		if err == nil {
			dir, err = unix.Openat(above, "moved-1", unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(above)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := unix.Openat(dir, "file", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err == nil {
		_, err = unix.Write(file, make([]byte, bytes))
	}
	if err := errors.Join(err, unix.Close(file), unix.Close(dir)); err != nil {
		t.Fatal(err)
	}
	vfstest.LimitDescriptors(t, 300)
	if n := Usage(top, math.MaxInt64); n < bytes {
		t.Errorf("uses %d bytes", n)
	}
	if err := RemoveTree(top); err != nil {
		t.Errorf("%.200v", err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

func TestRemoveTree(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"a/b/c", "a/x", "kept"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755),
			os.WriteFile(filepath.Join(dir, p), nil, 0o444)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(dir, "a", strconv.Itoa(i)), nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(dir, filepath.Join(dir, "a/b/link")), os.Symlink(dir, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "link", "gone"} {
		if err := RemoveTree(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestRemoveTreeStops stops a removal halfway; the next one removes the rest.
func TestRemoveTreeStops(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	for i := range 10 {
		dir := filepath.Join(top, strconv.Itoa(i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 10 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(j)), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	asked := 0
	r := remover{unlink: unlink, stopped: func() bool { asked++; return asked > 50 }}
	err := r.tree(top)
	left, _ := filepath.Glob(filepath.Join(top, "*", "*"))
	if !errors.Is(err, errStopped) || len(left) == 0 || len(left) == 100 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	if err := RemoveTree(top); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
