package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
)

// A Thread forks commands into a sandbox. Its methods are called on the thread that made it, which
// is locked.
type Thread struct {
	box             *Box
	mounts, network int // namespaces to come back to
	notApart        error
	prepared        bool // for the next command
}

// Thread prepares the calling thread: its children inherit the rights that it gives up. It forks
// the commands of all policies with p.Thread, and keeps its own capabilities, because a bound takes
// effect only at exec.
func (b *Box) Thread(p *Policy) (*Thread, error) {
	t := &Thread{box: b}
	var err1, err2 error
	t.mounts, err1 = ownNamespace("mnt")
	t.network, err2 = ownNamespace("net")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("give up new privileges: %w", err)
	}
	t.notApart = apart()
	if err := boundCapabilities(); err != nil {
		return nil, err
	}
	return t, restrict(p.Allow)
}

// ownNamespace opens one of the calling thread.
func ownNamespace(kind string) (int, error) {
	path := "/proc/thread-self/ns/" + kind
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open namespace", Path: path, Err: err}
	}
	return fd, nil
}

// NotApart returns the reason why commands may share sockets of the abstract namespace with others;
// nil: they cannot.
func (t *Thread) NotApart() error { return t.notApart }

// Prepare does ahead what the next command needs, whatever that is. The last one may be running.
// After an error Enter tries again.
func (t *Thread) Prepare() { _ = t.prepare() }

// prepare takes the thread to new namespaces, unless it is there already.
func (t *Thread) prepare() error {
	if t.prepared {
		return nil
	}
	if err := newKeyring(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount(names.MountSource, sharedMemory, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		t.comeBack(t.mounts, unix.CLONE_NEWNS)
		return &os.PathError{Op: "mount", Path: sharedMemory, Err: err}
	}
	t.prepared = true
	return nil
}

// Enter calls fork in new mount and network namespaces, which end with the command's last process,
// and returns the thread to its own. Something else that holds the mount namespace would keep the
// overlay of the input root, which must be gone before its folders are removed: removals would spin
// in the kernel meanwhile.
func (t *Thread) Enter(p *Policy, mounts []Mount, fork func() error) (err error) {
	if err := t.prepare(); err != nil {
		return err
	}
	defer func() {
		t.prepared = false
		t.comeBack(t.mounts, unix.CLONE_NEWNS)
	}()
	if err := mount(mounts, p); err != nil {
		return err
	}
	if p.NoNetwork {
		if err := t.box.networks.enter(p.User); err != nil {
			return err
		}
		defer t.comeBack(t.network, unix.CLONE_NEWNET)
	}
	return fork()
}

func (t *Thread) comeBack(namespace, kind int) {
	if err := unix.Setns(namespace, kind); err != nil {
		// The next command would start in this one's. The worker notices the death
		// of the launcher and starts another.
		panic(fmt.Sprintf("leave namespace %#x: %v", kind, err))
	}
}
