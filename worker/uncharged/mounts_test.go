package uncharged

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileSystems mounts some and counts them.
func TestFileSystems(t *testing.T) {
	before, err := FileSystems()
	if err != nil {
		t.Skip(err)
	}
	here := []int{os.Getpid(), 1 << 30, os.Getpid()}
	seen := Mounts(here, 1<<20)
	const some = 100
	for range some {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=4k"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	// Numbers that others gave back come first.
	if n, err := FileSystems(); err != nil || n < some || n < before+some/2 {
		t.Errorf("%d file systems, %v, after %d of %d more", n, err, some, before)
	}
	if n := Mounts(here, 1<<20) - seen; n < some/2 || n > 2*some { // others mount and unmount, too
		t.Errorf("%d mounts more, want %d", n, some)
	}
	if n := Mounts(here, 10); n != 10 {
		t.Errorf("%d mounts of 10 at most", n)
	}
}
