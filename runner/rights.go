package runner

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withRights calls f, which looks at files, with the rights to them that a command has which is
// who; nil: those of this process. What f finds goes into messages: it is to tell a command nothing
// that this could not find itself.
func withRights(who *syscall.Credential, f func() error) error {
	if who == nil || who.Uid == 0 || os.Geteuid() != 0 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	had, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("read groups: %w", err)
	}
	groups := make([]uint32, len(had))
	for i, g := range had {
		groups[i] = uint32(g)
	}
	if err := setGroups(who.Groups); err != nil {
		return fmt.Errorf("have the groups of user %d: %w", who.Uid, err)
	}
	// Without a user of the file system who is root, the thread has no capability over files.
	setThreadID(unix.SYS_SETFSGID, who.Gid)
	setThreadID(unix.SYS_SETFSUID, who.Uid)
	defer func() {
		setThreadID(unix.SYS_SETFSUID, uint32(os.Geteuid()))
		setThreadID(unix.SYS_SETFSGID, uint32(os.Getegid()))
		if err := setGroups(groups); err != nil {
			panic(fmt.Sprintf("restore groups: %v", err)) // root may
		}
	}()
	return f()
}

// setThreadID and setGroups are for the calling thread alone.
func setThreadID(call uintptr, id uint32) { _, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0) }

func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}
