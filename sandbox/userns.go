package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaceName is the argv[0] of a process that never runs: it starts stopped, and its attributes
// are read.
const namespaceName = "forerunner-user-namespace"

// ErrNoUserNamespace is wrapped by errors that name a missing requirement of users with IDs on this
// machine.
var ErrNoUserNamespace = errors.New("no user namespaces")

// The content of a command's own namespaces is kernel memory that is charged to no cgroup: some 120
// KiB for an empty network namespace, and unlimited neighbours, routes and addresses in it. So a
// command makes no network namespaces unless its policy allows that, and of other kinds as many as
// programs with sandboxes of their own need.
//
// The kernel counts namespaces for each user of each user namespace, up to the machine's
// (inc_ucount), and only a process with CAP_SYS_RESOURCE in a namespace writes its limits, which no
// command has in its own. A command may be many users. So its namespace lies in another one, in
// which it is a single user, and that one has the limits.

const (
	// mostNamespaces is how many namespaces of a kind a command may have at a time.
	mostNamespaces = 1000
	// mostMountNamespaces may be copied at once: each copy holds the kernel's one lock for all
	// mounts of the machine, and whoever mounts waits for them. Nested sandboxes need one each.
	mostMountNamespaces = 64
)

// namespaceLimit is where the limit of a kind is, below /proc.
func namespaceLimit(kind string) string { return "sys/user/max_" + kind + "_namespaces" }

// UserNamespace returns a user namespace in which the ids from 0 on are those of u, with User.IDs
// of them. It starts a process for a moment, so it comes before the first FUSE mount. An error that
// wraps ErrNoUserNamespace names the missing part of this machine.
func UserNamespace(u *User) (*os.File, error) {
	var namespace *os.File
	err := asOwner(int(u.UID), func() error {
		outer, err := outerNamespace(u)
		if err != nil {
			return err
		}
		defer outer.Close()
		namespace, err = boundedNamespace(outer, u.IDs)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoUserNamespace, err)
	}
	return namespace, nil
}

// openNamespace opens the user namespace of a process.
func openNamespace(to **os.File) func(pid int) error {
	return func(pid int) (err error) {
		*to, err = os.OpenFile(fmt.Sprintf("/proc/%d/ns/user", pid), os.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	}
}

// asOwner calls f on a thread with the effective user uid and all its capabilities. Resources of a
// user namespace (inotify instances, message queues, pending signals, namespaces, …) also count for
// its creator: if that was root, one command would use up root's and everybody's.
func asOwner(uid int, f func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := becomeOwner(uid)
		if err == nil {
			err = f()
			// Threads of a Go program must be alike; a different one ends.
			if back := setEUID(0); back == nil {
				runtime.UnlockOSThread()
			}
		}
		ended <- err
	}()
	return <-ended
}

// becomeOwner makes uid the effective user of the calling thread, which keeps its capabilities.
func becomeOwner(uid int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had [2]unix.CapUserData
	if err := unix.Capget(&header, &had[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	if err := setEUID(uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	if err := unix.Capset(&header, &had[0]); err != nil { // setEUID took the effective ones
		return fmt.Errorf("keep capabilities as user %d: %w", uid, err)
	}
	return nil
}

// setEUID sets the effective user of the calling thread alone.
func setEUID(uid int) error {
	const unchanged = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uintptr(uid), unchanged); errno != 0 {
		return errno
	}
	return nil
}

// inheritedFiles returns the limit of open files of a child.
func inheritedFiles() (limit unix.Rlimit, err error) {
	err = withStopped(&syscall.SysProcAttr{}, func(pid int) error {
		return unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit)
	})
	return limit, err
}

// withStopped calls f for a child that is stopped before its first instruction, and kills it: a
// program of this size takes longer to start than most commands run.
func withStopped(sys *syscall.SysProcAttr, look func(pid int) error) error {
	runtime.LockOSThread() // which traces it
	defer runtime.UnlockOSThread()
	sys.Ptrace, sys.Pdeathsig = true, unix.SIGKILL
	pid, err := syscall.ForkExec("/proc/self/exe", []string{namespaceName}, &syscall.ProcAttr{Sys: sys})
	if err != nil {
		return err
	}
	return whileStopped(pid, look)
}

// whileStopped calls f for a child that the calling thread traces when it executes.
func whileStopped(pid int, look func(pid int) error) error {
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, unix.WALL, nil)
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
