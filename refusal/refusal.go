package refusal

import (
	"errors"
	"slices"
	"syscall"
)

// known say that this user may not, or that this kernel cannot or has no such file. ENOSPC is not
// among them: a table of mounts, a limit of groups or a disk may have room again.
var known = []syscall.Errno{
	syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENODEV,
	syscall.ENOENT, syscall.EROFS,
}

// Is reports whether an error says that this machine lacks something, or that this user may not use
// it.
func Is(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(known, errno)
}
