package sandbox

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// networks are network namespaces that were made ahead: to make one takes as long as all else that
// a command costs. Each has a loopback device and is used once.
type networks struct {
	ready chan network
}

// network is a descriptor of a namespace, or why there is none.
type network struct {
	fd  int
	err error
}

// newNetworks starts a thread that makes them, one ahead, as long as the process lives.
func newNetworks() *networks {
	n := &networks{ready: make(chan network)}
	go n.run()
	return n
}

func (n *networks) run() {
	runtime.LockOSThread() // for good: it is of no other use
	for {
		n.ready <- makeNetwork()
	}
}

// makeNetwork takes the calling thread to a namespace of its own.
func makeNetwork() network {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return network{-1, fmt.Errorf("make network namespace: %w", err)}
	}
	if err := loopbackUp(); err != nil {
		return network{-1, fmt.Errorf("bring loopback up: %w", err)}
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return network{-1, fmt.Errorf("open network namespace: %w", err)}
	}
	return network{fd, nil}
}

// enter takes the calling thread to one of them.
func (n *networks) enter() error {
	made := <-n.ready
	if made.err != nil {
		return made.err
	}
	defer func() { _ = unix.Close(made.fd) }()
	if err := unix.Setns(made.fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
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
