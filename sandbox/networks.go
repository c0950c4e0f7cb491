package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// networks are network namespaces with a loopback device. They are made ahead: to make one takes as
// long as all else that a command costs. One serves the next command, too, if the last one left
// nothing in it.
type networks struct {
	ready chan *network
	fresh bool      // for each command
	last  *network  // that of the last command, unless it had one made for it alone; nil: there is none
	clean time.Time // when nothing was left in last after its last command
	said  []byte    // by witnesses
}

// staysClean is for how long a look at a network counts, in case the kernel sends packets for a
// process later, as it would without reportAtOnce.
const staysClean = 10 * time.Millisecond

// newNetworks starts a thread that makes them, one ahead, as long as the process lives.
func newNetworks(fresh bool) *networks {
	n := &networks{ready: make(chan *network), fresh: fresh, said: make([]byte, mostSaid)}
	go n.run()
	return n
}

func (n *networks) run() {
	runtime.LockOSThread() // for good: it is of no other use
	for {
		n.ready <- makeNetwork()
	}
}

// settle gives up the network of the last command, which has ended, unless the next one may have it.
func (n *networks) settle(now time.Time) {
	if n.last == nil {
		return
	}
	if !n.last.isOld(now) {
		if now.Sub(n.clean) < staysClean {
			return
		}
		if n.last.untouched(n.said) {
			n.clean = now
			return
		}
	}
	n.last.close()
	n.last = nil
}

// enter takes the calling thread to the network of a command of u. The last command has ended.
func (n *networks) enter(u *User) error {
	now := time.Now()
	n.settle(now)
	// The machine's root owns the namespace, and may write its files.
	if u.isRoot() || n.fresh {
		made := <-n.ready
		defer made.close()
		return made.enter()
	}
	if n.last == nil {
		made := <-n.ready
		made.entered = now
		n.last = made
	}
	n.clean = time.Time{}
	return n.last.enter()
}

// A network is a namespace, or why there is none.
type network struct {
	err       error
	fd        int
	witnesses []witness
	entered   time.Time // by the first command
}

// makeNetwork moves the calling thread to a new namespace.
func makeNetwork() *network {
	n := &network{fd: -1}
	if n.err = n.make(); n.err != nil {
		n.close()
	}
	return n
}

func (n *network) make() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring loopback up: %w", err)
	}
	if n.fd, err = ownNamespace("net"); err != nil {
		return err
	}
	if reportAtOnce() == nil { // else it is used once
		n.witnesses = openWitnesses()
	}
	return nil
}

// reportAtOnce has the kernel send no reports of a multicast group after it was left, which the next
// command could see. By the present versions of the protocols it does, within seconds; by the old ones
// only while the group has a member, and as it leaves. Nobody hears the reports.
func reportAtOnce() error {
	for file, version := range map[string]string{
		"/proc/sys/net/ipv4/conf/all/force_igmp_version": "2",
		"/proc/sys/net/ipv6/conf/all/force_mld_version":  "1",
	} {
		fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue // the kernel has no IPv6
		}
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte(version))
		if err := errors.Join(err, unix.Close(fd)); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	return nil
}

func (n *network) enter() error {
	if n.err != nil {
		return n.err
	}
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

// close releases it. Commands in it keep it.
func (n *network) close() {
	for _, w := range n.witnesses {
		_ = unix.Close(w.fd)
	}
	n.witnesses = nil
	if n.fd >= 0 {
		_ = unix.Close(n.fd)
		n.fd = -1
	}
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
