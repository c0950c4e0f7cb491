package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// leavings are programs that leave something in their network namespace, or did something there.
var leavings = map[string]func() error{
	"nothing": func() error { return nil },
	"a socket that was closed": func() error {
		l, err := net.Listen("unix", "@forerunner-test")
		if err != nil {
			return err
		}
		return l.Close()
	},
	"a connection": func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		_ = c.Close()
		return l.Close()
	},
	"a packet": func() error {
		c, err := net.Dial("udp", "127.0.0.1:9")
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return err
	},
	"a packet of IPv6": func() error {
		c, err := net.Dial("udp", "[::1]:9")
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("x"))
		return err
	},
	"an attempt at what has no route": func() error {
		if c, err := net.DialTimeout("tcp", "192.0.2.1:80", time.Second); err == nil {
			return fmt.Errorf("connected to %s", c.RemoteAddr())
		}
		return nil
	},
	"a label of flows": leaveFlowLabel,
	groupLeft:          leaveGroup,
	groupOfIPv6Left:    leaveGroupOfIPv6,
	waitForPacket:      sayPackets,
	"sockets in a message to nobody": func() error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(pair[0], pair[1]), nil, 0)
	},
}

const (
	groupLeft       = "a group that it left"
	groupOfIPv6Left = "a group of IPv6 that it left"
	waitForPacket   = "nothing, but it waits for packets of others"
)

// leaveGroup joins and leaves a multicast group. Within a second after that the kernel may send
// reports, as packets.
func leaveGroup() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	group := &unix.IPMreq{Multiaddr: [4]byte{239, 1, 2, 3}, Interface: [4]byte{127, 0, 0, 1}}
	return unix.SetsockoptIPMreq(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, group)
}

func leaveGroupOfIPv6() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
		&unix.IPv6Mreq{Multiaddr: [16]byte{0: 0xff, 1: 0x02, 14: 0x12, 15: 0x34}, Interface: 1})
}

// sayPackets prints what the devices of the namespace have counted some time later.
func sayPackets() error {
	time.Sleep(1100 * time.Millisecond)
	text, err := os.ReadFile("/proc/net/dev")
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	return err
}

// leaveFlowLabel makes a label for one socket alone, which closes: other labels are checked in its
// namespace from then on.
func leaveFlowLabel() error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const ipv6FlowLabelManager, get, exclusive, create = 32, 0, 1, 1
	request := struct { // in6_flowlabel_req
		to            [16]byte
		label         [4]byte
		action, share byte
		flags         uint16
		expires       uint16
		linger        uint16
		_             uint32
	}{to: [16]byte{15: 1}, label: [4]byte{2: 0x12, 3: 0x34}, action: get, share: exclusive, flags: create}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_IPV6, ipv6FlowLabelManager,
		uintptr(unsafe.Pointer(&request)), unsafe.Sizeof(request), 0)
	if errno != 0 {
		return fmt.Errorf("make a label: %w", errno)
	}
	return nil
}

// leaveVar has this test binary print which network namespace it is in, and leave something there.
const leaveVar = "SANDBOX_TEST_LEAVE"

func leaveMain(what string) {
	err := sayNetwork()
	if err == nil {
		err = leavings[what]()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// sayNetwork prints the number of the namespace, which no other ever had.
func sayNetwork() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return err
	}
	fmt.Println("network", cookie)
	return nil
}

// networkOf has a command of u leave something, and returns where it was.
func networkOf(t *testing.T, l *runner.Launcher, u *sandbox.User, what string) string {
	t.Helper()
	cmd := abuse(t, "")
	cmd.Env = append(cmd.Env, leaveVar+"="+what)
	cmd.User, cmd.NoNetwork = u, true
	launchertest.OpenParents(t, cmd.Dir)
	r := launchertest.Run(t, l, cmd)
	said := launchertest.Read(t, cmd.Stdout)
	if r.ExitCode != 0 || !strings.HasPrefix(said, "network ") {
		t.Fatalf("%q: exit code %d, %s", what, r.ExitCode, said)
	}
	return said
}

// TestTrustOfNetworksEnds: labels of flows stay for 6 s after their sockets, and no witness tells
// before they are seen.
func TestTrustOfNetworksEnds(t *testing.T) {
	for after, want := range map[time.Duration]bool{time.Second: true, 6 * time.Second: false, time.Hour: false} {
		if got, err := sandbox.Trusted(after); err != nil || got != want {
			t.Errorf("after %s: trusted %v, want %v; %v", after, got, want, err)
		}
	}
}

// TestGroupLeft: nothing of a multicast group that a command left is seen by the next one, not even
// later.
func TestGroupLeft(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	for _, what := range []string{groupLeft, groupOfIPv6Left} {
		networkOf(t, l, launchertest.OwnIDs, what)
		said := networkOf(t, l, launchertest.OwnIDs, waitForPacket)
		if _, counts, found := strings.Cut(said, "lo:"); !found || strings.Trim(counts, " 0\n") != "" {
			t.Errorf("after %s: %s", what, said)
		}
	}
}

// TestNetworkOfAnother: the next command gets a network namespace only if nothing is left in it.
func TestNetworkOfAnother(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	for what := range leavings {
		if what == groupLeft || what == groupOfIPv6Left || what == waitForPacket {
			continue // may leave nothing
		}
		t.Run(what, func(t *testing.T) {
			same := func() bool {
				before := networkOf(t, l, launchertest.OwnIDs, what)
				return networkOf(t, l, launchertest.OwnIDs, "nothing") == before
			}
			got, want := same(), what == "nothing" || what == "a socket that was closed"
			// The kernel collects such sockets when some process of the machine closes one of its own.
			for range 20 {
				if got && what == "sockets in a message to nobody" {
					got = same()
				}
			}
			if got != want {
				t.Errorf("the same network: %v, want %v", got, want)
			}
		})
	}
	t.Run("root", func(t *testing.T) {
		own, root := networkOf(t, l, launchertest.OwnIDs, "nothing"), networkOf(t, l, nil, "nothing")
		if again := networkOf(t, l, nil, "nothing"); own == root || again == root || networkOf(t, l, launchertest.OwnIDs, "nothing") == again {
			t.Errorf("%s, root's %s and %s", own, root, again)
		}
	})
	t.Run("off", func(t *testing.T) {
		l := launchertest.Start(t, runner.LauncherOptions{Sandbox: &sandbox.Options{FreshNetworks: true}})
		before := networkOf(t, l, launchertest.OwnIDs, "nothing")
		if networkOf(t, l, launchertest.OwnIDs, "nothing") == before {
			t.Error("a network was used twice")
		}
	})
}
