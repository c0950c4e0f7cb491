package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// usualTerminals is the default number of pseudo-terminals of a launcher's commands at a time.
const usualTerminals = 256

// Terminals makes the mount of a launcher's pseudo-terminals, unattached. The kernel counts
// pseudo-terminals for the whole machine, and a command can mount some of its own. It has a reserve
// (kernel.pty.reserve) for mounts made in the machine's first mount namespace, where no command is:
// so they are made there, if this process is there or may enter it.
func (o *Options) Terminals() (*os.File, error) {
	most := o.MostTerminals
	if most == 0 {
		most = usualTerminals
	}
	var terminals *os.File
	err := onSpareThread(func() (err error) {
		enterFirstMounts()
		terminals, err = mountTerminals(most)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("mount terminals: %w", err)
	}
	return terminals, nil
}

// onSpareThread calls f on a thread that ends afterwards, and that is not the first of this
// process, to which /proc/self belongs.
func onSpareThread(f func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			ended <- f()
			return
		}
		err := onSpareThread(f)
		runtime.UnlockOSThread()
		ended <- err
	}()
	return <-ended
}

// enterFirstMounts takes the calling thread to the mounts of the first process that it sees: that
// of the machine, if it is a service of it. In a container it stays.
func enterFirstMounts() {
	first, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(first) }()
	if unix.Unshare(unix.CLONE_FS) == nil {
		_ = unix.Setns(first, unix.CLONE_NEWNS)
	}
}

func mountTerminals(most int) (*os.File, error) {
	fs, err := unix.Fsopen("devpts", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigSetFlag(fs, "newinstance"); err != nil {
		return nil, err
	}
	for _, o := range [][2]string{{"ptmxmode", "0666"}, {"mode", "0620"}, {"max", strconv.Itoa(most)}} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return nil, fmt.Errorf("%s: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "terminals"), nil
}
