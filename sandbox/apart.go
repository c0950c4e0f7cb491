package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// apart denies the children of the calling thread sockets that others have made in the abstract
// namespace, which commands with the machine's network share. By such a socket a command could pass
// a descriptor of its folders to a command of another slot, which would still have it when the
// folders are those of the next action.
//
// It uses Landlock, which needs Linux 6.12: processes in its domain cannot connect to sockets
// outside, and all but the commands of this launcher are outside. It restricts nothing else.
func apart() error {
	rules := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET}
	// As much as the first kernels with scopes knew.
	size := unsafe.Offsetof(rules.Quiet_access_fs)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return fmt.Errorf("create Landlock rules: %w", errno)
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restrict to a Landlock domain: %w", errno)
	}
	return nil
}
