//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/test/programs"
)

// A network has hosts of one address each, on one bridge.
type network struct {
	*programs.Test
	prefix string // of the names of its namespaces
	// slowed: the kernel delays and loses packets; else lines delay what goes over them.
	slowed bool
}

func newNetwork(f *programs.Test) *network {
	f.Helper()
	n := &network{Test: f, prefix: fmt.Sprintf("forerunner-%d-", os.Getpid())}
	f.Cleanup(func() {
		list, err := os.ReadDir("/run/netns")
		if err != nil {
			f.Error(err)
		}
		for _, entry := range list {
			if strings.HasPrefix(entry.Name(), n.prefix) {
				n.ip("netns", "delete", entry.Name())
			}
		}
	})
	n.ip("netns", "add", n.prefix+"hub")
	n.ip("-n", n.prefix+"hub", "link", "add", "bridge", "type", "bridge")
	n.ip("-n", n.prefix+"hub", "link", "set", "bridge", "up")
	return n
}

func (n *network) ip(args ...string) {
	n.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.Errorf("ip %s: %v: %s", args, err, out)
	}
}

// host makes the host of a number.
func (n *network) host(number int) *host {
	n.Helper()
	h := &host{network: n, name: fmt.Sprint(n.prefix, number), port: fmt.Sprint("port", number), address: fmt.Sprint("10.77.0.", number)}
	n.ip("netns", "add", h.name)
	n.ip("-n", h.name, "link", "add", "eth0", "type", "veth", "peer", "name", h.port, "netns", n.prefix+"hub")
	n.ip("-n", n.prefix+"hub", "link", "set", h.port, "master", "bridge", "up")
	n.ip("-n", h.name, "address", "add", h.address+"/24", "dev", "eth0")
	n.ip("-n", h.name, "link", "set", "eth0", "up")
	n.ip("-n", h.name, "link", "set", "lo", "up")
	netem := exec.Command("nsenter", "--net=/run/netns/"+h.name, "tc", "qdisc", "add", "dev", "eth0", "root", "netem",
		"delay", "1ms", "loss", "0.1%")
	n.slowed = netem.Run() == nil
	return h
}

// A host is a network namespace.
type host struct {
	*network
	name, port, address string
}

// at is a port of the host.
func (h *host) at(port int) string { return net.JoinHostPort(h.address, fmt.Sprint(port)) }

func (h *host) run(args ...string) *programs.Process {
	h.Helper()
	if !filepath.IsAbs(args[0]) {
		args[0] = filepath.Join(h.Programs, args[0])
	}
	return h.Start(append([]string{"/usr/bin/nsenter", "--net=/run/netns/" + h.name}, args...)...)
}

// cut takes the host off the network until mend.
func (h *host) cut()  { h.ip("-n", h.prefix+"hub", "link", "set", h.port, "down") }
func (h *host) mend() { h.ip("-n", h.prefix+"hub", "link", "set", h.port, "up") }

// avoid stops the traffic from h to another host until meet.
func (h *host) avoid(other *host) {
	h.ip("-n", h.name, "route", "add", "blackhole", other.address+"/32")
}

func (h *host) meet(other *host) {
	h.ip("-n", h.name, "route", "del", "blackhole", other.address+"/32")
}

// inside calls do on the host: sockets that it makes are of there.
func (h *host) inside(do func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	there, err := os.Open("/run/netns/" + h.name)
	if err != nil {
		return err
	}
	defer there.Close()
	runtime.LockOSThread()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = do()
	if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread ends with its goroutine
	}
	return err
}

// dial connects from the host to the first of some addresses that answers.
func (h *host) dial(ctx context.Context, addresses ...string) (conn net.Conn, err error) {
	for _, address := range addresses {
		err = h.inside(func() (err error) {
			conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
			return err
		})
		if err == nil {
			return conn, nil
		}
	}
	return nil, err
}
