package uncharged

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileSystems mounts some in a mount namespace of one thread, and counts them there.
func TestFileSystems(t *testing.T) {
	before, err := FileSystems()
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const some = 100
	// The table of mounts has long lines.
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 200))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	here := []int{os.Getpid(), 1 << 30, os.Getpid()}
	seen := Mounted(t.Context(), here, 1<<20, 1<<20)
	mounted, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the namespace ends with the thread
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		for range some {
			if err == nil {
				err = unix.Mount("none", dir, "tmpfs", 0, "size=4k")
			}
		}
		mounted <- err
		<-end
	}()
	defer func() {
		close(end)
		<-ended
	}()
	if err := <-mounted; err != nil {
		t.Fatal(err)
	}
	// Numbers that others gave back come first.
	if n, err := FileSystems(); err != nil || n < some || n < before+some/2 {
		t.Errorf("%d file systems, %v, after %d of %d more", n, err, some, before)
	}
	// Some of the others may come and go.
	if n := Mounted(t.Context(), here, 1<<20, 1<<20) - seen; n < some/2 || n > 2*some {
		t.Errorf("%d file systems more, want %d", n, some)
	}
	if n := Mounted(t.Context(), here, 1<<20, 10); n != 10 {
		t.Errorf("%d file systems of 10 at most", n)
	}
	if n := Mounted(t.Context(), here, 5, 1<<20); n > 5 {
		t.Errorf("%d file systems with the numbers 1 to 5", n)
	}
}
