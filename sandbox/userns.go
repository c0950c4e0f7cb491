package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaceName is the argv[0] of a process that never runs: it is born stopped, and looked at.
const namespaceName = "forerunner-user-namespace"

// ErrNoUserNamespace is wrapped by errors that say what this machine lacks for users with IDs.
var ErrNoUserNamespace = errors.New("no user namespaces")

// UserNamespace returns a user namespace in which the ids from 0 on are those of u, with
// User.IDs of them. It starts a process for a moment, so it comes before the first FUSE mount.
// An error that wraps ErrNoUserNamespace says what this machine lacks.
func UserNamespace(u *User) (*os.File, error) {
	var namespace *os.File
	sys := &syscall.SysProcAttr{}
	u.namespace(sys)
	err := withStopped(sys, func(pid int) (err error) {
		namespace, err = os.OpenFile(fmt.Sprintf("/proc/%d/ns/user", pid), os.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoUserNamespace, err)
	}
	return namespace, nil
}

// namespace has a child born into a user namespace as its root.
func (u *User) namespace(sys *syscall.SysProcAttr) {
	ids := int(u.IDs)
	sys.Cloneflags |= unix.CLONE_NEWUSER
	sys.UidMappings = []syscall.SysProcIDMap{{HostID: int(u.UID), Size: ids}}
	sys.GidMappings = []syscall.SysProcIDMap{{HostID: int(u.GID), Size: ids}}
	sys.GidMappingsEnableSetgroups = true
	sys.Credential = &syscall.Credential{}
}

// inheritedFiles asks what a child gets.
func inheritedFiles() (limit unix.Rlimit, err error) {
	err = withStopped(&syscall.SysProcAttr{}, func(pid int) error {
		return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit)
	})
	return limit, err
}

// withStopped looks at a child that is stopped before its first instruction, and ends it: a program
// of this size takes longer to start than most commands do.
func withStopped(sys *syscall.SysProcAttr, look func(pid int) error) error {
	runtime.LockOSThread() // which traces it
	defer runtime.UnlockOSThread()
	sys.Ptrace, sys.Pdeathsig = true, unix.SIGKILL
	pid, err := syscall.ForkExec("/proc/self/exe", []string{namespaceName}, &syscall.ProcAttr{Sys: sys})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err = syscall.Wait4(pid, &status, unix.WALL, nil)
	if status.Exited() || status.Signaled() {
		return errors.Join(err, fmt.Errorf("the child ended: %v", status))
	}
	if err == nil {
		err = look(pid)
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	_, waited := syscall.Wait4(pid, &status, unix.WALL, nil)
	return errors.Join(err, waited)
}
