//go:build amd64 || arm64

package runner

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The standard library copies the memory of the forking process for a child in a new user namespace,
// and hands it its ids through a pipe, which takes longer than all else that a command costs. Here
// the child borrows the memory until it executes, as the library's other children do, and enters a
// namespace that is there already.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

func rawVfork(trap, a1, a2 uintptr) (pid, errno uintptr)

// A birth is all that a child needs. It must not allocate, nor call anything but the kernel.
type birth struct {
	program   *byte
	dir       *byte
	argv      []*byte
	envv      []*byte
	files     [3]uintptr
	namespace uintptr // of users
	bound     []uintptr
	nofile    unix.Rlimit

	clone3 bool // with args; else flags
	flags  uintptr
	args   cloneArgs

	failed syscall.Errno // of the child, which writes to the memory of its parent
}

// cloneArgs are those of clone3(2).
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// forkInto is syscall.ForkExec for a child that is root of a user namespace, where it keeps no
// capability but those that commands have. It ends with the calling thread.
func forkInto(namespace int, program string, req *runRequest, attr *syscall.ProcAttr, nofile unix.Rlimit) (int, error) {
	b := &birth{namespace: uintptr(namespace), bound: droppedCapabilities(), nofile: nofile}
	copy(b.files[:], attr.Files)
	var err error
	for _, s := range []struct {
		text string
		to   **byte
	}{{program, &b.program}, {req.Dir, &b.dir}} {
		if *s.to, err = syscall.BytePtrFromString(s.text); err != nil {
			return 0, err
		}
	}
	if b.argv, err = syscall.SlicePtrFromStrings(req.Args); err != nil {
		return 0, err
	}
	if b.envv, err = syscall.SlicePtrFromStrings(req.Env); err != nil {
		return 0, err
	}
	b.flags = unix.CLONE_VFORK | unix.CLONE_VM | attr.Sys.Cloneflags
	if attr.Sys.UseCgroupFD {
		b.clone3 = true
		b.args = cloneArgs{
			flags: uint64(b.flags) | unix.CLONE_INTO_CGROUP, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(attr.Sys.CgroupFD),
		}
	}
	syscall.ForkLock.Lock()
	pid, errno := b.fork()
	afterFork()
	syscall.ForkLock.Unlock()
	if errno != 0 {
		return 0, errno
	}
	if b.failed != 0 {
		if _, err := wait4Of(int(pid)); err != nil {
			return 0, fmt.Errorf("wait for a child that did not start: %w", err)
		}
		return 0, b.failed
	}
	return int(pid), nil
}

func wait4Of(pid int) (int, error) {
	for {
		got, err := syscall.Wait4(pid, nil, unix.WALL, nil)
		if err != unix.EINTR {
			return got, err
		}
	}
}

// fork returns in the parent only, when the child executes or has ended. The variables are declared
// at the top because nothing may be allocated once it is called.
//
//go:noinline
//go:norace
//go:nocheckptr
func (b *birth) fork() (pid uintptr, errno syscall.Errno) {
	var (
		e    uintptr
		i    int
		ppid uintptr
		r    uintptr
	)
	ppid, _, _ = syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
	beforeFork()
	if b.clone3 {
		pid, e = rawVfork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&b.args)), unsafe.Sizeof(b.args))
	} else {
		pid, e = rawVfork(syscall.SYS_CLONE, b.flags|uintptr(syscall.SIGCHLD), 0)
	}
	if e != 0 || pid != 0 {
		return pid, syscall.Errno(e)
	}

	// The child, from here on.
	afterForkInChild()
	if _, _, b.failed = syscall.RawSyscall(unix.SYS_SETNS, b.namespace, unix.CLONE_NEWUSER, 0); b.failed != 0 {
		goto end
	}
	if _, _, b.failed = syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); b.failed != 0 {
		goto end
	}
	if _, _, b.failed = syscall.RawSyscall(syscall.SYS_SETRESGID, 0, 0, 0); b.failed != 0 {
		goto end
	}
	for i = range b.bound {
		if _, _, b.failed = syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_CAPBSET_DROP, b.bound[i], 0); b.failed != 0 {
			goto end
		}
	}
	if _, _, b.failed = syscall.RawSyscall(syscall.SYS_SETRESUID, 0, 0, 0); b.failed != 0 {
		goto end
	}
	if _, _, b.failed = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0); b.failed != 0 {
		goto end
	}
	if _, _, b.failed = syscall.RawSyscall(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(b.dir)), 0, 0); b.failed != 0 {
		goto end
	}
	if _, _, b.failed = syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0); b.failed != 0 {
		goto end
	}
	// It is told of the parent's death from now on only.
	if r, _, _ = syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0); r != ppid {
		b.failed = syscall.ESRCH
		goto end
	}
	for i = range b.files {
		if _, _, b.failed = syscall.RawSyscall(syscall.SYS_DUP3, b.files[i], uintptr(i), 0); b.failed != 0 {
			goto end
		}
	}
	if _, _, b.failed = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&b.nofile)), 0, 0, 0); b.failed != 0 {
		goto end
	}
	_, _, b.failed = syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(b.program)),
		uintptr(unsafe.Pointer(&b.argv[0])), uintptr(unsafe.Pointer(&b.envv[0])))
end:
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 253, 0, 0)
	}
}
