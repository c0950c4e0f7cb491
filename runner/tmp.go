package runner

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharedTmp is the folder that a command gets to itself.
const sharedTmp = "/tmp"

// TryOwnTmp returns nil if Command.TempDir can be used: this process may make a
// mount namespace and mount in it. It must not be called once a FUSE mount is made.
func TryOwnTmp() error {
	// A process is started in a new namespace, with mounts parted from the system's,
	// as far as to find that there is no such program.
	const absent = "/proc/self/no program"
	_, err := syscall.ForkExec(absent, []string{absent}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS},
	})
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fmt.Errorf("make mount namespace: %w", err)
}

// withOwnTmp calls fork on the calling thread in a mount namespace of its own, in
// which req.TempDir lies over /tmp. The namespace goes on in what fork starts and
// ends with the last process of it; the thread comes back. The input root stays
// visible where it is, even below /tmp. Without a TempDir fork is called as it is.
func withOwnTmp(req *runRequest, fork func() (int, error)) (int, error) {
	if req.TempDir == "" {
		return fork()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open mount namespace: %w", err)
	}
	defer unix.Close(home)
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return 0, fmt.Errorf("make mount namespace: %w", err)
	}
	pid, err := 0, coverTmp(req)
	if err == nil {
		pid, err = fork()
	}
	if back := unix.Setns(home, unix.CLONE_NEWNS); back != nil {
		// The next command would start among this one's mounts. The worker notices
		// the death of the launcher and starts another.
		panic(fmt.Sprintf("leave mount namespace: %v", back))
	}
	return pid, err
}

// coverTmp mounts req.TempDir over /tmp. What is mounted here stays here, and what
// the worker unmounts outside disappears here too, where the system shares mounts.
func coverTmp(req *runRequest) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("part mounts from the system's: %w", err)
	}
	covered := strings.HasPrefix(req.Root, sharedTmp+"/")
	root := -1
	if covered {
		var err error
		if root, err = unix.Open(req.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open input root: %w", err)
		}
		defer unix.Close(root)
	}
	if err := unix.Mount(req.TempDir, sharedTmp, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount temporary folder over %s: %w", sharedTmp, err)
	}
	if !covered {
		return nil
	}
	if err := os.MkdirAll(req.Root, 0o755); err != nil {
		return fmt.Errorf("make place for the input root: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/thread-self/fd/%d", root), req.Root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount input root below %s: %w", sharedTmp, err)
	}
	return nil
}
