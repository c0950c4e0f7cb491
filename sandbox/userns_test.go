package sandbox_test

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/sandbox"
)

// nsGetOwnerUID asks for the user who made a user namespace (ioctl_ns(2)).
const nsGetOwnerUID = 0xb704

// What a namespace uses up counts for its own user, not for root and so for everybody.
func TestOwnerOfAUserNamespace(t *testing.T) {
	u := &sandbox.User{UID: 1900000000, GID: 1900000000, IDs: 65536}
	f, err := sandbox.UserNamespace(u)
	if err != nil {
		if os.Getenv("CI") != "" && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer func() { _ = f.Close() }()
	if owner, err := unix.IoctlGetUint32(int(f.Fd()), nsGetOwnerUID); err != nil || owner != u.UID {
		t.Errorf("made by user %d, want %d; %v", owner, u.UID, err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Geteuid() != 0 {
		t.Errorf("a thread is user %d afterwards", unix.Geteuid())
	}
}
