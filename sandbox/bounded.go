//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// namespaceLimits are those of each kind.
var namespaceLimits = map[string]int64{
	"user": mostNamespaces, "pid": mostNamespaces, "uts": mostNamespaces, "ipc": mostNamespaces,
	"net": mostNamespaces, "mnt": mostMountNamespaces, "cgroup": mostNamespaces, "time": mostNamespaces,
}

// outerNamespace returns a user namespace with the ids of u, made by the user of the calling thread.
func outerNamespace(u *User) (namespace *os.File, err error) {
	b := &birth{clone: systemCall{number: unix.SYS_CLONE, a1: vfork | unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}}
	defer b.pin.Unpin()
	err = b.whileStopped(func(pid int) error {
		for name, first := range map[string]uint32{"uid_map": u.UID, "gid_map": u.GID} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, name), fmt.Appendf(nil, "0 %d %d", first, u.IDs), 0); err != nil {
				return fmt.Errorf("map the ids of a user namespace: %w", err)
			}
		}
		return openNamespace(&namespace)(pid)
	})
	return namespace, err
}

// boundedNamespace returns a user namespace in outer, with the same ids, and gives outer its
// limits. It is called on a thread that may do that.
func boundedNamespace(outer *os.File, ids uint32) (namespace *os.File, err error) {
	proc, err := mountProc()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(proc) }()
	first := bornInto(outer)
	defer first.pin.Unpin()
	first.add(unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	err = first.whileStopped(func(pid int) error {
		if err := limit(outer, proc, pid, ids); err != nil {
			return fmt.Errorf("limit a user namespace: %w", err)
		}
		return openNamespace(&namespace)(pid)
	})
	return namespace, err
}

// whileStopped calls f for the child, which then is killed before its first instruction.
func (b *birth) whileStopped(look func(pid int) error) error {
	runtime.LockOSThread() // which traces it
	defer runtime.UnlockOSThread()
	b.add(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	b.add(unix.SYS_PTRACE, unix.PTRACE_TRACEME)
	if err := b.execute("/proc/self/exe", []string{namespaceName}, nil); err != nil {
		return err
	}
	pid, err := b.run()
	if err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	return whileStopped(pid, look)
}

// limit maps the ids of the process pid, which is in a namespace in outer, and writes the limits of
// outer: a process in outer must do both.
func limit(outer *os.File, proc, pid int, ids uint32) error {
	b := bornInto(outer)
	defer b.pin.Unpin()
	b.add(unix.SYS_CLOSE_RANGE, 0, uintptr(proc-1), 0)
	b.add(unix.SYS_CLOSE_RANGE, uintptr(proc+1), math.MaxUint32, 0)
	all := fmt.Appendf(nil, "0 0 %d", ids)
	files := map[string][]byte{fmt.Sprintf("%d/uid_map", pid): all, fmt.Sprintf("%d/gid_map", pid): all}
	for kind, most := range namespaceLimits {
		files[namespaceLimit(kind)] = strconv.AppendInt(nil, most, 10)
	}
	for name, text := range files {
		const first = 0 // descriptor
		if err := b.write(proc, name, text, first); err != nil {
			return err
		}
	}
	b.exec = systemCall{number: unix.SYS_EXIT}
	child, err := b.run()
	if err != nil {
		return err
	}
	_, err = wait4Of(child)
	return err
}

// bornInto is a child that is root of a user namespace.
func bornInto(namespace *os.File) *birth {
	b := &birth{clone: systemCall{number: unix.SYS_CLONE, a1: vfork | uintptr(unix.SIGCHLD)}}
	b.add(unix.SYS_SETNS, namespace.Fd(), unix.CLONE_NEWUSER)
	b.add(unix.SYS_SETGROUPS)
	b.add(unix.SYS_SETRESGID)
	b.add(unix.SYS_SETRESUID)
	return b
}

// mountProc returns a /proc that is nowhere: the one of a container may be read-only in parts.
func mountProc() (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open a file system of processes: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("make a file system of processes: %w", err)
	}
	dir, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount a file system of processes: %w", err)
	}
	return dir, nil
}
