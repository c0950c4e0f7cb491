//go:build !amd64 && !arm64

package sandbox

import (
	"os"
	"syscall"
)

// forksInto reports whether there is a Child.Fork, without which there is no sandbox.
const forksInto = false

// outerNamespace is of no use where there is no sandbox.
func outerNamespace(*User) (*os.File, error) { return nil, syscall.ENOSYS }

// boundedNamespace is of no use where there is no sandbox.
func boundedNamespace(*os.File, uint32) (*os.File, error) { return nil, syscall.ENOSYS }

// Fork is never called.
func (*Child) Fork(string, []string, *syscall.ProcAttr) (int, error) { return 0, syscall.ENOSYS }
