package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// TestTrash removes also what cannot be written to, and does not stop at a fault.
func TestTrash(t *testing.T) {
	dir := t.TempDir()
	tr := NewTrash(filepath.Join(dir, "t"), zap.NewNop())
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
	tr := NewTrash(filepath.Join(base, "t"), zap.NewNop())
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
