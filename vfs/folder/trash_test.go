package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// TestTrash removes also what cannot be written to, and does not stop at a fault.
func TestTrash(t *testing.T) {
	dir := t.TempDir()
	tr := NewTrash(filepath.Join(dir, "t"), nil, zap.NewNop())
	for i := range 2 * maxTrash {
		p := filepath.Join(dir, fmt.Sprint(i), "a")
		if err := errors.Join(os.MkdirAll(p, 0o755), os.Chmod(p, 0o555)); err != nil {
			t.Fatal(err)
		}
		if err := tr.Put(filepath.Dir(p)); err != nil {
			t.Error(err)
		}
	}
	if err := tr.Put(filepath.Join(dir, "no")); err != nil {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	// The remains of a killed process have the names that the next process uses.
	if err := os.MkdirAll(filepath.Join(tr.dir, "1", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkdir(filepath.Join(dir, "y"), 0o755); err != nil {
		t.Fatal(err)
	}
	tr.serial = 0
	if err := errors.Join(tr.Put(filepath.Join(dir, "y")), tr.Sweep()); err != nil {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// TestTrashMoved: what was not found because the trash was elsewhere is removed in the end.
func TestTrashMoved(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	tr := NewTrash(filepath.Join(base, "t"), nil, zap.NewNop())
	moved := make(chan struct{})
	for _, name := range []string{"a", "b"} {
		p := filepath.Join(base, name)
		if err := errors.Join(os.MkdirAll(p, 0o755), os.WriteFile(filepath.Join(p, "file"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		err := tr.PutWith(p, func(dir int, name string) error {
			<-moved
			return unlink(dir, name)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(base, base+"-moved"); err != nil {
		t.Fatal(err)
	}
	close(moved)
	tr.Wait()
	if err := errors.Join(os.Rename(base+"-moved", base), tr.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestTrashStopped: what is left after Stop is left as it is, also what takes no unlink.
func TestTrashStopped(t *testing.T) {
	tr := NewTrash(filepath.Join(t.TempDir(), "t"), nil, zap.NewNop())
	if err := os.MkdirAll(filepath.Join(tr.dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	tr.Stop()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(tr.dir, "empty")); err != nil {
		t.Error(err)
	}
}

// TestTrashWithoutFolder: where there is no trash, its caller removes a folder.
func TestTrashWithoutFolder(t *testing.T) {
	for what, place := range map[string]func(path string) error{
		"a file":  func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"nowhere": func(path string) error { return os.Symlink("nowhere", path) },
		"itself":  func(path string) error { return os.Symlink(path, path) },
	} {
		dir := t.TempDir()
		p := filepath.Join(dir, "p")
		if err := errors.Join(os.MkdirAll(filepath.Join(p, "a"), 0o755), place(filepath.Join(dir, "t"))); err != nil {
			t.Fatal(err)
		}
		if err := NewTrash(filepath.Join(dir, "t"), nil, zap.NewNop()).Put(p); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it is left, %v", what, err)
		}
	}
}

// TestTrashOfMany has many callers put folders in while the leftovers of another process are
// removed.
func TestTrashOfMany(t *testing.T) {
	dir := t.TempDir()
	tr := NewTrash(filepath.Join(dir, "t"), nil, zap.NewNop())
	for i := range 100 {
		if err := os.MkdirAll(filepath.Join(tr.dir, fmt.Sprint(i), "left"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 100 {
				p := filepath.Join(dir, fmt.Sprint(i, ".", j))
				if err := os.MkdirAll(filepath.Join(p, "a", "b"), 0o755); err != nil {
					t.Error(err)
				}
				var err error
				if j%20 == 0 {
					err = tr.Sweep()
				}
				if err = errors.Join(err, tr.Put(p)); err != nil {
					t.Error(err)
				}
				if _, err := os.Lstat(p); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", p, err)
				}
			}
		})
	}
	callers.Wait()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
