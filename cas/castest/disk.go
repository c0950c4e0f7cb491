package castest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/disk"
)

// OpenDisk opens a store on disk, of 1 GiB by default, until the end of the test.
func OpenDisk(t testing.TB, dir string, o disk.Options) *disk.Store {
	t.Helper()
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	s, err := disk.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TempFiles lists remaining temporary files.
func TempFiles(t testing.TB, s *disk.Store) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.TempDir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// WantConsistent fails the test unless the store matches the disk, and nothing is pinned, reserved
// or left over. Nothing else may use the store.
func WantConsistent(t testing.TB, s *disk.Store) {
	t.Helper()
	var blobs, size int64
	err := filepath.WalkDir(s.Dir(), func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(s.Dir(), path)
		if d, ok := disk.ParseBlobPath(name); ok && err == nil {
			blobs, size = blobs+1, size+d.SizeBytes()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := s.Stats()
	if got.Bytes != size || got.Blobs != blobs || got.ReservedBytes != 0 || got.PinnedBytes != 0 || got.Bytes > got.MaxBytes {
		t.Errorf("store: %+v; disk: %d bytes, %d blobs", got, size, blobs)
	}
	if names := TempFiles(t, s); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// Tmpfs mounts a small file system, which ends with the test.
func Tmpfs(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("cannot mount a tmpfs: %v", err)
		}
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
