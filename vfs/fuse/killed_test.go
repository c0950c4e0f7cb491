package fuse

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// limitDescriptors allows this process so many more than it has, until the test ends.
func limitDescriptors(t *testing.T, more int) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, fd := range fds {
		if n, err := strconv.Atoi(fd.Name()); err == nil {
			last = max(last, n)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(last + more), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

// A process of which nothing can be learned, for want of a descriptor, is not one that
// is being killed: its access goes on.
func TestKilledWithoutDescriptors(t *testing.T) {
	thread := uint32(os.Getpid())
	limitDescriptors(t, 16)
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if mounts.Killed(thread) {
		t.Error("it is thought to be killed")
	}
}
