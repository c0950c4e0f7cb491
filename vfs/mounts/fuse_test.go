package mounts

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// TestStopWithoutFolder: a mount whose folder was moved, with another one in its place, ends like
// one whose folder is gone.
func TestStopWithoutFolder(t *testing.T) {
	if f, err := os.OpenFile(FUSEDevice, os.O_RDWR, 0); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") == "" {
			t.Skip("no FUSE, or not root:", err)
		}
		t.Fatal(err)
	} else {
		_ = f.Close()
	}
	for _, name := range []string{"gone", "replaced"} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			data, moved := filepath.Join(dir, "data"), filepath.Join(dir, "moved")
			if err := os.MkdirAll(filepath.Join(data, "mount"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := Detach(dir); err != nil {
					t.Error(err)
				}
			})
			c := NewFUSE(filepath.Join(data, "mount"))
			if err := c.Start(fuse.NewDefaultRawFileSystem(), &fuse.MountOptions{MaxWrite: 1 << 17}); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(data, moved); err != nil {
				t.Fatal(err)
			}
			if name == "replaced" {
				if err := os.MkdirAll(c.Dir(), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Stop() }()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the server did not end")
			}
		})
	}
}
