package vfstest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// AsUser calls f on a thread with a user's access to files.
func AsUser(t *testing.T, uid int, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, err := unix.SetfsuidRetUid(uid)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.SetfsuidRetUid(old) }()
	f()
}
