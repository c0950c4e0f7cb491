package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaceName is the argv[0] of a process that only holds a user namespace until another
// one has a descriptor of it.
const namespaceName = "forerunner-user-namespace"

// UserNamespace returns a user namespace in which the ids from 0 on are those of u, with
// User.IDs of them. It starts a process for a moment, so it comes before the first FUSE mount.
// An error that wraps ErrNoUserNamespace says what this machine lacks.
func UserNamespace(u *User) (*os.File, error) {
	f, err := userNamespace(u)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoUserNamespace, err)
	}
	return f, nil
}

func userNamespace(u *User) (_ *os.File, err error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	sys := &syscall.SysProcAttr{Setsid: true}
	u.namespace(sys)
	proc, err := os.StartProcess("/proc/self/exe", []string{namespaceName}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{ours, os.Stderr, os.Stderr}, Sys: sys,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = theirs.Close() // and it ends
		_, waited := proc.Wait()
		err = errors.Join(err, waited)
	}()
	return os.OpenFile(fmt.Sprintf("/proc/%d/ns/user", proc.Pid), os.O_RDONLY|unix.O_CLOEXEC, 0)
}

// holdNamespace is what the process does.
func holdNamespace() { _, _ = io.Copy(io.Discard, os.Stdin) }

// namespace has a child born into a user namespace as its root.
func (u *User) namespace(sys *syscall.SysProcAttr) {
	ids := int(u.IDs)
	sys.Cloneflags |= unix.CLONE_NEWUSER
	sys.UidMappings = []syscall.SysProcIDMap{{HostID: int(u.UID), Size: ids}}
	sys.GidMappings = []syscall.SysProcIDMap{{HostID: int(u.GID), Size: ids}}
	sys.GidMappingsEnableSetgroups = true
	sys.Credential = &syscall.Credential{}
}
