package refusal

import (
	"errors"
	"slices"
	"syscall"
)

// known say that this user may not, or that this kernel cannot or has no such file. ENOSPC is a
// limit of namespaces, which a machine may set to 0.
var known = []syscall.Errno{
	syscall.EPERM, syscall.EACCES, syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENODEV,
	syscall.ENOENT, syscall.EROFS, syscall.ENOSPC,
}

// Is reports whether an error says that this machine lacks something, or that this user may not use
// it.
func Is(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && slices.Contains(known, errno)
}
