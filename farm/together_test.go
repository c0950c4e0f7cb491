package farm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// TestRemoveStore: the store that the worker no longer uses is removed, but nothing that a symlink
// or a mount shows in its place.
func TestRemoveStore(t *testing.T) {
	for what, show := range map[string]func(t *testing.T, elsewhere, dir string) error{
		"symlink": func(_ *testing.T, elsewhere, dir string) error { return os.Symlink(elsewhere, dir) },
		"mount":   bind,
		"mount below": func(t *testing.T, elsewhere, dir string) error {
			return bind(t, elsewhere, filepath.Join(dir, "sha256"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			elsewhere := t.TempDir()
			kept := filepath.Join(elsewhere, "kept")
			w := &Worker{Data: t.TempDir(), Logger: zap.NewNop()}
			dir := filepath.Join(w.Data, "cas")
			if err := errors.Join(os.WriteFile(kept, nil, 0o600), show(t, elsewhere, dir)); err != nil {
				t.Fatal(err)
			}
			w.removeStore()
			_, err := os.Lstat(dir)
			if _, gone := os.Lstat(kept); errors.Join(err, gone) != nil {
				t.Error(err, gone)
			}
		})
	}
	w := &Worker{Data: t.TempDir(), Logger: zap.NewNop()}
	dir := filepath.Join(w.Data, "cas")
	if err := os.MkdirAll(filepath.Join(dir, "sha256", "00"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.removeStore()
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Error("a folder:", err)
	}
}

// bind mounts a folder at dir until the test ends.
func bind(t *testing.T, source, dir string) error {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount(source, dir, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return nil
}
