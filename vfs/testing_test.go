package vfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// disturb sends every thread of the helper, also the one that waits for FUSE, a
// signal that a Go program takes without noticing, and gives FUSE time to
// report it: that it has leaves no trace to wait for.
func (h *helper) disturb() error {
	pid := h.cmd.Process.Pid
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, th := range threads {
		tid, err := strconv.Atoi(th.Name())
		if err != nil {
			return err
		}
		if err := unix.Tgkill(pid, tid, unix.SIGURG); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	time.Sleep(30 * time.Millisecond)
	return nil
}

func isEIO(err error) bool { return errors.Is(err, unix.EIO) }

// waitUntil polls what the kernel or another process does in its own time.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}
