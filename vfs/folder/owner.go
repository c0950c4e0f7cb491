package folder

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Owner is a user and a group.
type Owner struct{ UID, GID uint32 }

// ProcessOwner returns the user and group of this process.
func ProcessOwner() Owner { return Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())} }

// Give changes the owner of a folder to o. This process must have made the folder.
func (o Owner) Give(dir string) error {
	if o == ProcessOwner() {
		return nil
	}
	return os.Chown(dir, int(o.UID), int(o.GID))
}

// Act calls f on a thread with the file access of o, so that files made by f belong to o. The thread
// keeps its identity otherwise.
func (o Owner) Act(f func() error) error {
	if o == ProcessOwner() {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gid, err := unix.SetfsgidRetGid(int(o.GID))
	if err != nil {
		return err
	}
	defer func() { _, _ = unix.SetfsgidRetGid(gid) }()
	uid, err := unix.SetfsuidRetUid(int(o.UID))
	if err != nil {
		return err
	}
	defer func() { _, _ = unix.SetfsuidRetUid(uid) }()
	return f()
}
