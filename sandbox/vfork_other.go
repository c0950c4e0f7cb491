//go:build !amd64 && !arm64

package sandbox

import "syscall"

// forksInto tells whether there is a Child.Fork, without which there is no sandbox.
const forksInto = false

// Fork is never called.
func (*Child) Fork(string, []string, *syscall.ProcAttr) (int, error) { return 0, syscall.ENOSYS }
