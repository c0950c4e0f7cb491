package runner

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

// UserNamespace returns a user namespace in which the ids from 0 on are those of u, with
// User.IDs of them. It starts a process for a moment, so it comes before the first FUSE mount.
// An error that wraps ErrNoUserNamespace says what this machine lacks.
func UserNamespace(u *User) (*os.File, error) {
	id, err := newIdentity(u)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoUserNamespace, err)
	}
	return id.namespace, nil
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

// identity is a user namespace that commands enter, and what they are to have of open files: the
// runtime raises that of this process, and lowers it for the children that it forks itself.
type identity struct {
	namespace *os.File
	nofile    unix.Rlimit
}

// identity returns that of u, which the first command of u makes. There are as many as actions at a time.
func (s *server) identity(u *User) (*identity, error) {
	if u == nil || u.IDs == 0 {
		return nil, nil
	}
	key := User{UID: u.UID, GID: u.GID, IDs: u.IDs}.key()
	if id := s.identities[key]; id != nil {
		return id, nil
	}
	id, err := newIdentity(u)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoUserNamespace, err)
	}
	s.identities[key] = id
	return id, nil
}

func (u User) key() [3]uint32 { return [3]uint32{u.UID, u.GID, u.IDs} }

// newIdentity looks at a child that is root of a new user namespace and is stopped before its first
// instruction: a program of this size takes longer to start than most commands.
func newIdentity(u *User) (_ *identity, err error) {
	runtime.LockOSThread() // which traces it
	defer runtime.UnlockOSThread()
	sys := &syscall.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL}
	u.namespace(sys)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{namespaceName}, &syscall.ProcAttr{Sys: sys})
	if err != nil {
		return nil, err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return nil, err
	}
	if status.Exited() || status.Signaled() {
		return nil, fmt.Errorf("the child ended: %v", status)
	}
	defer func() {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, waited := syscall.Wait4(pid, &status, unix.WALL, nil)
		err = errors.Join(err, waited)
	}()
	id := &identity{}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &id.nofile); err != nil {
		return nil, fmt.Errorf("find the limit of open files: %w", err)
	}
	id.namespace, err = os.OpenFile(fmt.Sprintf("/proc/%d/ns/user", pid), os.O_RDONLY|unix.O_CLOEXEC, 0)
	return id, err
}
