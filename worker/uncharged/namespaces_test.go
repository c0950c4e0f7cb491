package uncharged

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListed compares the two ways to count.
func TestListed(t *testing.T) {
	n, err := listed("/proc/self/ns/mnt", 1<<20)
	if err != nil {
		t.Skip("only since Linux 6.11, and for root: ", err)
	}
	if want := described("/proc/self/mountinfo", 1<<20); n < want/2 || n > 2*want { // some come and go
		t.Errorf("%d mounts are listed, %d described", n, want)
	}
}

// TestWaitToMount has a table of processes like that of proc(5).
func TestWaitToMount(t *testing.T) {
	proc := t.TempDir()
	thread := func(pid, tid, stat, call string) {
		dir := filepath.Join(proc, pid, "task", tid)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600),
			os.WriteFile(filepath.Join(dir, "syscall"), []byte(call), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	waits := fmt.Sprintf("%d 0x20000 0x0", unix.SYS_UNSHARE)
	thread("10", "10", "10 (a) D (x) D 1 10", waits)
	thread("10", "11", "11 (a) S 1 10", waits)
	thread("10", "12", "12 (a) D 1 10", fmt.Sprintf("%d 0x3", unix.SYS_FSYNC))
	thread("10", "13", "13 (a) D 1 10", "running")
	thread("10", "14", "14 (a) D 1 10", fmt.Sprintf("%d 0x4111 0x0", unix.SYS_CLONE)) // for its child
	thread("10", "15", "15 (a) D 1 10", fmt.Sprintf("%d 0x10000000 0x0", unix.SYS_UNSHARE))
	thread("20", "20", "20 (b) D 1 10", fmt.Sprintf("%d 0x3", unix.SYS_MOUNT))
	thread("30", "30", "30 (c) D 1 10", waits)
	thread("40", "40", "40 (D", waits)
	if n := waitToMount(proc, []int{10, 20, 40, 50}, 100); n != 2 {
		t.Errorf("%d wait, want 2", n)
	}
	if n := waitToMount(proc, []int{10, 20}, 1); n != 1 {
		t.Errorf("%d wait, of 1 at most", n)
	}
}
