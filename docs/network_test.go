package docs

import (
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A network is a network namespace for the programs started in it. It has a loopback device, to
// which 10.0.0.0/8 leads, too. So commands can use the documentation's addresses and ports,
// whatever else runs on the machine.
type network struct{ fd int }

// newNetwork makes a network, which ends with the test.
func newNetwork(t *testing.T) network {
	t.Helper()
	var n network
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		made <- func() (err error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := loopback(); err != nil {
				return err
			}
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			return err
		}()
	}()
	if err := <-made; err != nil {
		t.Fatalf("make a network: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(n.fd) })
	return n
}

// loopback brings the device up and gives it another address.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return err
	}
	for _, set := range []struct {
		request uint
		address []byte
	}{{unix.SIOCSIFADDR, []byte{10, 0, 0, 1}}, {unix.SIOCSIFNETMASK, []byte{255, 0, 0, 0}}} {
		second, err := unix.NewIfreq("lo:1")
		if err != nil {
			return err
		}
		if err := second.SetInet4Addr(set.address); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, set.request, second); err != nil {
			return err
		}
	}
	return nil
}

// start starts a command in the network.
func (n network) start(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		err := unix.Setns(n.fd, unix.CLONE_NEWNET)
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}()
	return <-started
}
