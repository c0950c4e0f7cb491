//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"math"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
)

// The standard library copies the memory of the forking process for a child in a new user
// namespace, and passes its ids through a pipe. Here the child borrows the memory until it
// executes, as the library's other children do, and enters an existing namespace. It can also have
// attributes that the forking thread must not have: a cgroup namespace, another filter.
//
// A no-op command with an identity of its own takes 4.0 ms like this and 8.3 ms by the library, on
// 2 busy cores of Linux 6.18 (BenchmarkRun/sandbox_v2_own, medians of 11 alternating runs of 200).

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

const forksInto = true

const sigsetLength = 8 // bytes of the kernel's signal set

const vfork uintptr = unix.CLONE_VFORK | unix.CLONE_VM

func rawVfork(trap, a1, a2 uintptr) (pid, errno uintptr)

// A birth is all that a child needs. The child must not allocate, nor call anything but the kernel.
type birth struct {
	clone systemCall
	// steps are the child's system calls, up to the first that fails, before it executes.
	steps []systemCall
	exec  systemCall
	// plain: the child is born with the default action of each signal, which to set takes a call
	// for each.
	plain  bool
	failed syscall.Errno // of the child, which writes to the memory of its parent

	pin runtime.Pinner // of the arguments of system calls
}

type systemCall struct{ number, a1, a2, a3, a4 uintptr }

// cloneArgs are those of clone3(2).
type cloneArgs struct {
	flags      uint64
	_          [3]uint64 // pidfd, child_tid, parent_tid
	exitSignal uint64
	_          [5]uint64 // stack, stack_size, tls, set_tid, set_tid_size
	cgroup     uint64
}

// Fork is syscall.ForkExec for the commands of a sandbox; the child ends with the calling thread.
// The child has its own cgroup namespace. With a user namespace it is root there, and keeps only
// the capabilities of commands.
func (c *Child) Fork(program string, args []string, attr *syscall.ProcAttr) (int, error) {
	b := &birth{}
	defer b.pin.Unpin()
	if err := b.prepare(attr, c); err != nil {
		return 0, err
	}
	if err := b.execute(program, args, attr.Env); err != nil {
		return 0, err
	}
	return b.run()
}

// run makes the child, and returns when that executes or has ended. The child is the caller's to
// wait for, but after an error.
func (b *birth) run() (int, error) {
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

// prepare makes the list of the child's system calls.
func (b *birth) prepare(attr *syscall.ProcAttr, c *Child) error {
	flags := vfork | attr.Sys.Cloneflags
	b.clone = systemCall{number: syscall.SYS_CLONE, a1: flags | uintptr(syscall.SIGCHLD)}
	if attr.Sys.UseCgroupFD {
		args := &cloneArgs{
			flags: uint64(flags) | unix.CLONE_INTO_CGROUP | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD), cgroup: uint64(attr.Sys.CgroupFD),
		}
		b.clone = systemCall{number: unix.SYS_CLONE3, a1: address(b, args), a2: unsafe.Sizeof(*args)}
		b.plain = true
		b.add(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, address(b, new(unix.Sigset_t)), 0, sigsetLength)
	}
	b.add(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	if c.filter != nil { // with its capabilities: other processes may have used up net.core.bpf_jit_limit
		b.add(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, address(b, c.filter))
	}
	b.become(c, attr.Sys.Credential)
	dir, err := syscall.BytePtrFromString(attr.Dir)
	if err != nil {
		return err
	}
	b.add(unix.SYS_SETSID)
	b.add(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	for i, file := range attr.Files {
		b.add(unix.SYS_DUP3, file, uintptr(i))
	}
	// Before a name that the command chose is looked up, which may lead to /proc/self/fd.
	next := uintptr(len(attr.Files))
	b.add(unix.SYS_CLOSE_RANGE, next, math.MaxUint32, 0)
	if c.namespace >= 0 { // only a process with all capabilities there may write its limits, as this child until it executes
		if err := b.write(unix.AT_FDCWD, "/proc/"+namespaceLimit("net"), c.networks, next); err != nil {
			return err
		}
	}
	b.add(unix.SYS_CHDIR, address(b, dir))
	nofile := c.nofile
	b.add(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, address(b, &nofile))
	if c.core != nil {
		core := *c.core
		b.add(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CORE, address(b, &core))
	}
	return nil
}

// become gives the child its user. Its capabilities in a user namespace are limited there.
func (b *birth) become(c *Child, who *syscall.Credential) {
	if c.namespace >= 0 {
		b.add(unix.SYS_SETNS, uintptr(c.namespace), unix.CLONE_NEWUSER)
		who = &syscall.Credential{}
	}
	if who == nil {
		return
	}
	var groups uintptr
	if len(who.Groups) > 0 {
		groups = address(b, &who.Groups[0])
	}
	b.add(unix.SYS_SETGROUPS, uintptr(len(who.Groups)), groups)
	b.add(unix.SYS_SETRESGID, uintptr(who.Gid), uintptr(who.Gid), uintptr(who.Gid))
	if c.namespace >= 0 {
		for _, capability := range droppedCapabilities() {
			b.add(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability)
		}
	}
	b.add(unix.SYS_SETRESUID, uintptr(who.Uid), uintptr(who.Uid), uintptr(who.Uid))
}

func (b *birth) execute(program string, args, env []string) error {
	path, err := syscall.BytePtrFromString(program)
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	envv, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	b.exec = systemCall{number: unix.SYS_EXECVE, a1: address(b, path), a2: address(b, &argv[0]), a3: address(b, &envv[0])}
	return nil
}

// write has the child write text to a file that is there. fd is the first descriptor that it has
// free.
func (b *birth) write(dir int, path string, text []byte, fd uintptr) error {
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	b.add(unix.SYS_OPENAT, uintptr(dir), address(b, name), unix.O_WRONLY)
	b.add(unix.SYS_WRITE, fd, address(b, &text[0]), uintptr(len(text)))
	b.add(unix.SYS_CLOSE, fd)
	return nil
}

func (b *birth) add(number uintptr, arguments ...uintptr) {
	var a [4]uintptr
	copy(a[:], arguments)
	b.steps = append(b.steps, systemCall{number, a[0], a[1], a[2], a[3]})
}

// address is where p points to, which stays there until b has ended.
func address[T any](b *birth, p *T) uintptr {
	b.pin.Pin(p)
	return uintptr(unsafe.Pointer(p))
}

func wait4Of(pid int) (int, error) {
	return eintr.Ignore(func() (int, error) { return syscall.Wait4(pid, nil, unix.WALL, nil) })
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
		s    *systemCall
		ppid uintptr
		r    uintptr
	)
	ppid, _, _ = syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
	beforeFork()
	pid, e = rawVfork(b.clone.number, b.clone.a1, b.clone.a2)
	if e != 0 || pid != 0 {
		return pid, syscall.Errno(e)
	}

	// The child, from here on. It has the signal mask of this thread, all blocked, until the
	// library or the first step sets that of commands.
	if !b.plain {
		afterForkInChild()
	}
	for i = range b.steps {
		s = &b.steps[i]
		if _, _, b.failed = syscall.RawSyscall6(s.number, s.a1, s.a2, s.a3, s.a4, 0, 0); b.failed != 0 {
			goto end
		}
	}
	// From that step on it learns of the parent's death.
	if r, _, _ = syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0); r != ppid {
		b.failed = syscall.ESRCH
		goto end
	}
	_, _, b.failed = syscall.RawSyscall(b.exec.number, b.exec.a1, b.exec.a2, b.exec.a3)
end:
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 253, 0, 0)
	}
}
