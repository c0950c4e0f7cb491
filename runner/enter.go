package runner

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
)

// keptCapabilities are those that a command of root has in a sandbox: enough for its
// own files and processes, for fakeroot and package managers, and nothing to mount,
// trace the launcher, make devices, open files by handle or change the network with.
var keptCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETPCAP, unix.CAP_SETFCAP,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
}

// inside is the thread that forks commands into a sandbox. Its methods are called on
// that thread, which is locked.
type inside struct {
	mounts, network int // namespaces to come back to
	networks        *networks
	notApart        error
}

// enterSandbox prepares the calling thread: what it has lost, all that it forks has
// lost. It keeps its own capabilities, because a bound is felt by exec only.
func enterSandbox(allow []string, n *networks) (*inside, error) {
	in := &inside{networks: n}
	for _, n := range []struct {
		path string
		to   *int
	}{{"/proc/thread-self/ns/mnt", &in.mounts}, {"/proc/thread-self/ns/net", &in.network}} {
		var err error
		if *n.to, err = unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, &os.PathError{Op: "open namespace", Path: n.path, Err: err}
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("forgo new privileges: %w", err)
	}
	in.notApart = apart()
	if err := boundCapabilities(); err != nil {
		return nil, err
	}
	return in, restrict(allow)
}

// droppedCapabilities are all others that the kernel has.
var droppedCapabilities = sync.OnceValue(func() (dropped []uintptr) {
	for c := uintptr(0); c < 64; c++ {
		if set, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0); err != nil || set < 0 {
			break // the kernel's last one was before
		}
		if !slices.Contains(keptCapabilities, c) {
			dropped = append(dropped, c)
		}
	}
	return dropped
})

func boundCapabilities() error {
	for _, c := range droppedCapabilities() {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	// What is inheritable passes the bound.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("make no capability inheritable: %w", err)
	}
	return nil
}

// with calls fork in mount and network namespaces that are made for this command and
// end with its last process, and brings the thread back.
func (in *inside) with(m *message, fork func() error) (err error) {
	if err := newKeyring(); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	defer in.comeBack(in.mounts, unix.CLONE_NEWNS)
	if err := in.mount(m); err != nil {
		return err
	}
	if m.Run.NoNetwork {
		if err := in.networks.enter(); err != nil {
			return err
		}
		defer in.comeBack(in.network, unix.CLONE_NEWNET)
	}
	return fork()
}

func (in *inside) comeBack(namespace, kind int) {
	if err := unix.Setns(namespace, kind); err != nil {
		// The next command would start in this one's. The worker notices the death
		// of the launcher and starts another.
		panic(fmt.Sprintf("leave namespace %#x: %v", kind, err))
	}
}

// mount completes what the launcher's root is to this command.
func (in *inside) mount(m *message) error {
	const own = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	for _, d := range []struct {
		kind fileKind
		path string
	}{{fileRoot, SandboxRoot}, {fileTempDir, "/tmp"}} {
		fd := m.file(d.kind)
		err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: own})
		if err == nil {
			err = unix.MoveMount(fd, "", unix.AT_FDCWD, d.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return &os.PathError{Op: "mount", Path: d.path, Err: err}
		}
	}
	if err := unix.Mount("/tmp", varTmp, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount", Path: varTmp, Err: err}
	}
	if err := mountNames(m); err != nil {
		return err
	}
	if m.Run.User.isRoot() {
		if err := protectKernel(); err != nil {
			return err
		}
	}
	if err := unix.Mount(names.MountSource, "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return &os.PathError{Op: "mount", Path: "/dev/shm", Err: err}
	}
	return nil
}

// mountNames shows the machine's names of hosts to a command with its network.
func mountNames(m *message) error {
	for _, f := range networkFiles {
		fd := m.file(f.kind)
		if fd < 0 {
			continue
		}
		err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: noMore})
		if err == nil {
			err = unix.MoveMount(fd, "", unix.AT_FDCWD, f.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		}
		if err != nil {
			return &os.PathError{Op: "mount", Path: f.path, Err: err}
		}
	}
	return nil
}

// kernelFiles in /proc change the machine when root writes to them, whatever
// capabilities it has lost. Other users cannot, nor root of a namespace, who could not mount a
// /proc of their own if these were covered.
var kernelFiles = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr", "dynamic_debug"}

// protectKernel makes them read-only.
func protectKernel() error {
	for _, name := range kernelFiles {
		path := "/proc/" + name
		err := unix.Mount(path, path, "", unix.MS_BIND, "")
		if errors.Is(err, unix.ENOENT) {
			continue // not every kernel has it
		}
		if err == nil {
			err = setAttributes(path, unix.MOUNT_ATTR_RDONLY, 0)
		}
		if err != nil {
			return &os.PathError{Op: "protect", Path: path, Err: err}
		}
	}
	return nil
}

// isRoot reports whether u is the machine's root.
func (u *User) isRoot() bool {
	return u == nil || u.UID == 0 && u.IDs == 0
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
