package mounts

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/mountinfo"
)

func TestPointsBelow(t *testing.T) {
	all := mountinfo.Parse(`22 28 0:21 / /sys rw,relatime - sysfs sysfs rw
30 28 0:50 / /m rw - tmpfs tmpfs rw
31 28 0:50 / /mine rw - tmpfs tmpfs rw
32 30 0:51 / /m/a/lower ro,nodev shared:3 - fuse.forerunner forerunner ro
33 30 0:52 / /m/a/root rw,nodev - overlay forerunner rw,lowerdir=/m/x
34 30 0:53 / /m/with\040space\134and\011tab rw - overlay forerunner rw
`)
	for dir, want := range map[string][]string{
		"/m":   {"/m/a/lower", "/m/a/root", "/m/with space\\and\ttab"},
		"/m/a": {"/m/a/lower", "/m/a/root"},
		"/":    {"/sys", "/m", "/mine", "/m/a/lower", "/m/a/root", "/m/with space\\and\ttab"},
		"/no":  nil,
	} {
		if got := pointsBelow(all, dir); !slices.Equal(got, want) {
			t.Errorf("below %s: %q, want %q", dir, got, want)
		}
	}
}

func TestDetachStackedMounts(t *testing.T) {
	dir := t.TempDir()
	p := filepath.Join(dir, "a,b:c \\d")
	if err := os.Mkdir(p, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := unix.Mount("test", p, "tmpfs", 0, ""); err != nil {
			if os.Getenv("CI") == "" {
				t.Skipf("mount: %v", err)
			}
			t.Fatal(err)
		}
	}
	if err := Detach(dir); err != nil {
		t.Error(err)
	}
	if left, err := Below(dir); len(left) > 0 || err != nil {
		t.Errorf("left: %q, %v", left, err)
	}
}
