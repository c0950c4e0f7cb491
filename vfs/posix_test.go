package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// ownLocks is the case of go-fuse's suite that is left out: it expects that a
// lock of fcntl(2) stands in the way of the process that has it. POSIX says
// otherwise and so do the kernel's file systems, a root among them:
// TestLocksOfOneProcess.
const ownLocks = "FcntlFlockLocksFile"

// TestPosix runs all of go-fuse's conformance suite but one in each place that
// is unlike the others: a root without inputs, a folder that is new, one that is
// an input, and one that held inputs, all of them removed, and has another name now.
func TestPosix(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		empty, inputs := src.Tree(t), src.Tree(t, "empty/", "full/x/", "full/y", "full/z -> y")
		for _, place := range []struct {
			name, dir string
			inputs    bool
			prepare   func(dir string) error
		}{
			{"empty root", ".", false, func(string) error { return nil }},
			{"new folder", "new", true, func(dir string) error { return os.Mkdir(dir, 0o755) }},
			{"empty input", "empty", true, func(string) error { return nil }},
			{"emptied and moved input", "moved", true, func(dir string) error {
				full := filepath.Join(filepath.Dir(dir), "full")
				return errors.Join(unix.Rmdir(full+"/x"), unix.Unlink(full+"/y"), unix.Unlink(full+"/z"), os.Rename(full, dir))
			}},
		} {
			for name, test := range posixtest.All {
				if name == ownLocks {
					continue
				}
				t.Run(name+" in "+place.name, func(t *testing.T) {
					spec := RootSpec{Digest: inputs, Source: src}
					if !place.inputs {
						// Else it is no mount but a folder of the disk.
						spec.Digest, spec.OnLook = empty, func(string, Look) {}
					}
					r := openRoot(t, f, spec)
					dir := filepath.Join(r.Path(), place.dir)
					if err := place.prepare(dir); err != nil {
						t.Fatal(err)
					}
					test(t, dir)
					if err := r.Err(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}

// TestLocksOfOneProcess: locks in a root behave as in ext4: locks of one process never conflict
// with each other, locks of open files do.
func TestLocksOfOneProcess(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "file"), Source: src})
	plain := t.TempDir()
	if err := os.WriteFile(filepath.Join(plain, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"root": r.Path(), "plain folder": plain} {
		one, two := openForLock(t, filepath.Join(dir, "file")), openForLock(t, filepath.Join(dir, "file"))
		lock := func(fd uintptr, cmd int, kind int16) error {
			return unix.FcntlFlock(fd, cmd, &unix.Flock_t{Type: kind})
		}
		if err := lock(one, unix.F_SETLK, unix.F_WRLCK); err != nil {
			t.Errorf("%s: lock: %v", name, err)
		}
		if err := lock(two, unix.F_SETLK, unix.F_RDLCK); err != nil {
			t.Errorf("%s: the same process again: %v", name, err)
		}
		if err := lock(two, unix.F_OFD_SETLK, unix.F_WRLCK); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%s: lock of the open file: %v, want EAGAIN", name, err)
		}
	}
}

func openForLock(t *testing.T, p string) uintptr {
	t.Helper()
	f, err := os.OpenFile(p, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f.Fd()
}
