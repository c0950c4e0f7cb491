package farm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/farm/scrub"
)

// TestSpreadFolders looks at the mark of a worker's folder (chattr +T) on ext4 without a journal,
// with the setting and without.
func TestSpreadFolders(t *testing.T) {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root and mkfs.ext4:", err)
		}
		t.Skip("needs root and mkfs.ext4:", err)
	}
	image, disk := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 16<<20)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", "-O", "^has_journal", image}, {"mount", "-o", "loop", image, disk}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	const mark = 0x20000 // EXT4_TOPDIR_FL
	for _, want := range []bool{false, true} {
		w := &Worker{Data: filepath.Join(disk, "data"), Disk: scrub.Disk{SpreadFolders: want}, Logger: zap.NewNop()}
		dir, err := w.makeWorkDir()
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if got := flags&mark != 0; got != want {
			t.Errorf("spread_folders %v: the mark is %v", want, got)
		}
	}
}
