package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
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
	namespace, err := UserNamespace(u)
	if err != nil {
		return nil, err
	}
	id := &identity{namespace: namespace}
	if id.nofile, err = inheritedFiles(); err != nil {
		return nil, fmt.Errorf("find the limit of open files: %w", err)
	}
	s.identities[key] = id
	return id, nil
}

func (u User) key() [3]uint32 { return [3]uint32{u.UID, u.GID, u.IDs} }

// inheritedFiles asks what a child gets, of one that is stopped before its first instruction.
func inheritedFiles() (limit unix.Rlimit, err error) {
	runtime.LockOSThread() // which traces it
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{namespaceName}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Ptrace: true, Pdeathsig: unix.SIGKILL},
	})
	if err != nil {
		return limit, err
	}
	var status syscall.WaitStatus
	if _, err = syscall.Wait4(pid, &status, unix.WALL, nil); err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit)
	}
	if status.Exited() || status.Signaled() {
		return limit, errors.Join(err, fmt.Errorf("the child ended: %v", status))
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	_, waited := syscall.Wait4(pid, &status, unix.WALL, nil)
	return limit, errors.Join(err, waited)
}
