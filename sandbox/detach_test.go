package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// TestDetachRenamed: a mount whose folder gets another name after the table of mounts was read is
// unmounted, too.
func TestDetachRenamed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	before, after := filepath.Join(dir, ".ready-1"), filepath.Join(dir, "action")
	if err := os.MkdirAll(filepath.Join(before, "root"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", filepath.Join(before, "root"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(after, "root"), unix.MNT_DETACH) })
	isOurs := func(m mountinfo.Mount) bool { return paths.Below(m.Point, dir) }
	moved := false
	err = detach(func(m mountinfo.Mount) bool {
		if isOurs(m) && !moved {
			moved = true
			if err := os.Rename(before, after); err != nil {
				t.Error(err)
			}
		}
		return isOurs(m)
	})
	if err != nil {
		t.Error(err)
	}
	all, err := mountinfo.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if isOurs(m) {
			t.Errorf("%s is still mounted", m.Point)
		}
	}
}
