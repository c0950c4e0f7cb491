package folder

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// inodesPerGroup is that of the disks here, which have 8 groups.
const inodesPerGroup = 1024

// mountExt4 mounts a disk in a file until the end of the test.
func mountExt4(t *testing.T, features string) (dir string) {
	t.Helper()
	_, err := exec.LookPath("mkfs.ext4")
	if err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root and mkfs.ext4:", err)
		}
		t.Skip("needs root and mkfs.ext4:", err)
	}
	above := t.TempDir()
	image, dir := filepath.Join(above, "image"), filepath.Join(above, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-b", "1024", "-N", strconv.Itoa(8 * inodesPerGroup), "-O", "^flex_bg," + features, image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// groupsOf makes folders in a new one, and returns in how many groups of the disk they are.
func groupsOf(t *testing.T, dir string, spread bool) int {
	t.Helper()
	dir = filepath.Join(dir, strconv.FormatBool(spread))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing is to be done
		if spread {
			if err := Spread(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	groups := map[uint64]bool{}
	for i := range 16 {
		folder := filepath.Join(dir, strconv.Itoa(i))
		var st unix.Stat_t
		if err := errors.Join(os.Mkdir(folder, 0o755), unix.Stat(folder, &st)); err != nil {
			t.Fatal(err)
		}
		groups[(st.Ino-1)/inodesPerGroup] = true
	}
	return len(groups)
}

func TestSpread(t *testing.T) {
	plain := mountExt4(t, "^has_journal")
	if near, far := groupsOf(t, plain, false), groupsOf(t, plain, true); near != 1 || far < 3 {
		t.Errorf("16 folders are in %d groups of 8, and spread in %d", near, far)
	}
	journal := mountExt4(t, "has_journal")
	if near := groupsOf(t, journal, true); near != 1 {
		t.Errorf("with a journal they are in %d", near)
	}
}

func TestSpreadElsewhere(t *testing.T) {
	if err := Spread("/dev/shm"); err != nil {
		t.Error(err)
	}
	if err := Spread(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
