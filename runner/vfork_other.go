//go:build !amd64 && !arm64

package runner

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// forkInto leaves to the standard library what it does on other architectures.
func forkInto(_ int, program string, req *runRequest, attr *syscall.ProcAttr, _ unix.Rlimit) (int, error) {
	req.User.namespace(attr.Sys)
	return syscall.ForkExec(program, req.Args, attr)
}
