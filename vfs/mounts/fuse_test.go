package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// needFUSE skips the test where there is no FUSE.
func needFUSE(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(FUSEDevice, os.O_RDWR, 0)
	if err == nil {
		_ = f.Close()
	}
	if err == nil && os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "" {
		t.Skip("no FUSE, or not root:", err)
	}
	t.Fatal(err)
}

// TestStopWithoutFolder: a mount whose folder was moved, and replaced by another one, ends like one
// whose folder is gone.
func TestStopWithoutFolder(t *testing.T) {
	needFUSE(t)
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
			c := NewFUSE(filepath.Join(data, "mount"), nil)
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

// TestStopAgain: a second Stop ends nothing else, although the number of the descriptor by which the
// first one knew the mount is another mount's by now.
func TestStopAgain(t *testing.T) {
	needFUSE(t)
	start := func() *FUSE {
		c := NewFUSE(t.TempDir(), nil)
		if err := c.Start(fuse.NewDefaultRawFileSystem(), &fuse.MountOptions{MaxWrite: 1 << 17}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	first, other := start(), start()
	number := first.pin
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(other.pin, number, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(number)
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(other.Dir(), &st); !errors.Is(err, unix.ENOSYS) { // what its server says
		t.Errorf("the other mount says %v", err)
	}
}

// refuse makes a system call of this thread fail, as the filter of a container does.
func refuse(call uint32, with unix.Errno) error {
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(with)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
}

// controlWithout opens the control file system where fsopen(2) fails.
func controlWithout(dir string, with unix.Errno) error {
	if err := refuse(unix.SYS_FSOPEN, with); err != nil {
		return fmt.Errorf("refuse fsopen: %w", err)
	}
	fd, done, err := openControl(dir)
	if err != nil {
		return err
	}
	var opened, mounted unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &opened), unix.Stat(dir, &mounted))
	if err == nil && opened.Dev != mounted.Dev {
		err = errors.New("what is opened is not what is mounted")
	}
	return errors.Join(err, done())
}

// TestControlWithoutFsopen: on old kernels, and where a container's filter refuses fsopen(2), the
// control file system is mounted on the folder, and then no longer.
func TestControlWithoutFsopen(t *testing.T) {
	needFUSE(t)
	for _, with := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		dir := filepath.Join(t.TempDir(), "empty")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			ended <- controlWithout(dir, with)
		}()
		if err := <-ended; err != nil {
			t.Errorf("%v: %v", with, err)
		}
		if err := os.Remove(dir); err != nil { // it would be busy
			t.Error(err)
		}
	}
}
