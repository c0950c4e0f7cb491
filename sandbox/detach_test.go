package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// TestDetachRenamed: a mount whose folder gets another name after the table of mounts was read is
// unmounted, too, unless that happens each time.
func TestDetachRenamed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts")
	}
	for _, c := range []struct {
		name  string
		times int
		gone  bool
	}{
		{"once", 1, true},
		{"some times", detachRounds - 2, true},
		{"each time", detachRounds, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			at, next := filepath.Join(dir, ".ready-1"), filepath.Join(dir, "action")
			if err := os.MkdirAll(filepath.Join(at, "root"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("none", filepath.Join(at, "root"), "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(filepath.Join(at, "root"), unix.MNT_DETACH) })
			isOurs := func(m mountinfo.Mount) bool { return paths.Below(m.Point, dir) }
			left := c.times
			err = detach(func(m mountinfo.Mount) bool {
				if isOurs(m) && left > 0 {
					left--
					if err := os.Rename(at, next); err != nil {
						t.Error(err)
					}
					at, next = next, at
				}
				return isOurs(m)
			})
			if (err == nil) != c.gone {
				t.Error(err)
			}
			all, err := mountinfo.Read()
			if err != nil {
				t.Fatal(err)
			}
			if mounted := slices.ContainsFunc(all, isOurs); mounted == c.gone {
				t.Errorf("still mounted: %t", mounted)
			}
		})
	}
}
