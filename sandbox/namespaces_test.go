package sandbox_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// insideVar has this test binary, as a child of a command, do what it names.
const insideVar = "SANDBOX_TEST_INSIDE"

// inNamespaces runs this program again in namespaces of its own, in each way that the library has.
func inNamespaces(flags uintptr, what string) (said string, err error) {
	for _, own := range []syscall.SysProcAttr{
		{Cloneflags: unix.CLONE_NEWUSER | flags}, {Cloneflags: unix.CLONE_NEWUSER, Unshareflags: flags},
	} {
		own.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		own.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		c := again(what)
		c.SysProcAttr = &own
		var out []byte
		if out, err = c.CombinedOutput(); err == nil {
			return string(out), nil
		}
		err = fmt.Errorf("%w: %s", err, out)
	}
	return "", err
}

// makeNetwork makes a network namespace, in which it has power.
func makeNetwork([]string) error {
	if os.Getenv(insideVar) != "" {
		return nil
	}
	_, err := inNamespaces(unix.CLONE_NEWNET, "nothing")
	if err == nil {
		return nil
	}
	return makeNetworkByClone3()
}

// cloneArgs are those of clone3(2).
type cloneArgs struct {
	flags      uint64
	_          [3]uint64 // pidfd, child_tid, parent_tid
	exitSignal uint64
	_          [6]uint64 // stack, stack_size, tls, set_tid, set_tid_size, cgroup
}

// makeNetworkByClone3 asks in the way that no filter sees.
func makeNetworkByClone3() error {
	args := cloneArgs{flags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, exitSignal: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if pid == 0 && errno == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if errno != 0 {
		return errno
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// fillNeighbours adds permanent neighbours to a network of its own: memory that the kernel charges
// to no one.
func fillNeighbours([]string) error {
	if os.Getenv(insideVar) == "" {
		_, err := inNamespaces(unix.CLONE_NEWNET, "neighbours")
		return err
	}
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	for i := range uint32(1000) {
		if err := unix.Sendto(socket, neighbour(i), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		answer := make([]byte, 4096)
		n, _, err := unix.Recvfrom(socket, answer, 0)
		if err != nil || n < unix.SizeofNlMsghdr+4 {
			return fmt.Errorf("%d bytes, %w", n, err)
		}
		if errno := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); errno != 0 {
			return unix.Errno(-errno)
		}
	}
	return nil
}

// neighbour is a message that adds one to the loopback device.
func neighbour(i uint32) []byte {
	const device, link, address = 1, 6, 16
	const size = unix.SizeofNlMsghdr + unix.SizeofNdMsg + unix.SizeofRtAttr + address + unix.SizeofRtAttr + 8
	order := binary.NativeEndian
	m := order.AppendUint32(nil, size)
	m = order.AppendUint16(m, unix.RTM_NEWNEIGH)
	m = order.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	m = append(m, make([]byte, 8)...)
	m = append(m, unix.AF_INET6, 0, 0, 0)
	m = order.AppendUint32(m, device)
	m = order.AppendUint16(m, unix.NUD_PERMANENT)
	m = append(m, 0, 0)
	m = order.AppendUint16(order.AppendUint16(m, unix.SizeofRtAttr+address), unix.NDA_DST)
	m = binary.BigEndian.AppendUint32(append(m, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), i)
	m = order.AppendUint16(order.AppendUint16(m, unix.SizeofRtAttr+link), unix.NDA_LLADDR)
	return append(m, make([]byte, 8)...)
}

// TestNetworkNamespaces: a policy allows them for one command, and not for the next.
func TestNetworkNamespaces(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	for name, user := range map[string]*sandbox.User{"root": nil, "own": launchertest.OwnIDs, "user": {UID: 70000, GID: 70000}} {
		t.Run(name, func(t *testing.T) {
			l := launchertest.Sandboxed(t, nil)
			var namespace *os.File
			for _, allow := range [][]string{nil, {"network_namespaces"}, nil} {
				for _, attack := range []string{"make a network namespace", "fill neighbours"} {
					cmd := abuse(t, attack)
					cmd.Env = append(cmd.Env, attackVar+"=1")
					cmd.User, cmd.Allow, cmd.Namespace = user, allow, namespace
					launchertest.OpenParents(t, cmd.Dir)
					cmd = launchertest.Complete(t, l, cmd)
					namespace = cmd.Namespace // all of them are in one
					if r := launchertest.Run(t, l, cmd); (r.ExitCode == 0) != (allow != nil) {
						t.Errorf("%s, allowing %v: %d, %s", attack, allow, r.ExitCode, launchertest.Read(t, cmd.Stdout))
					}
				}
			}
		})
	}
}

// hoardNamespaces takes all namespaces of a kind that it gets as one user, and as another, and says how
// many that were.
func hoardNamespaces(kind []string) error {
	switch os.Getenv(insideVar) {
	case "user":
		uid := os.Getuid()
		own := again("holder")
		own.Stdin, own.Stdout = os.Stdin, os.Stdout
		own.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: uid, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: uid, Size: 1}},
		}
		return own.Run()
	case "holder":
		return holdNamespaces(kind[0])
	}
	var said []string
	for _, uid := range []uint32{0, 1000} {
		c := again("user")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		in, out, err := pipes(c)
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return fmt.Errorf("as user %d: %w", uid, err)
		}
		defer func() { _ = in.Close(); _ = c.Wait() }()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return fmt.Errorf("as user %d: %q, %w", uid, line, err)
		}
		said = append(said, strings.TrimSpace(line))
	}
	return fmt.Errorf("got %s", strings.Join(said, " "))
}

func pipes(c *exec.Cmd) (in io.WriteCloser, out io.Reader, err error) {
	if in, err = c.StdinPipe(); err == nil {
		out, err = c.StdoutPipe()
	}
	return in, out, err
}

// again is this program as a child of the command.
func again(what string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), insideVar+"="+what)
	return c
}

// holdNamespaces takes namespaces of a kind, says how many, and holds them until its input ends.
func holdNamespaces(kind string) error {
	runtime.LockOSThread()
	flag := map[string]int{"ipc": unix.CLONE_NEWIPC, "mnt": unix.CLONE_NEWNS}[kind]
	got := 0
	for ; got < 5*sandbox.MostNamespaces && unix.Unshare(flag) == nil; got++ {
		if _, err := unix.Open("/proc/thread-self/ns/"+kind, unix.O_RDONLY, 0); err != nil {
			return err
		}
	}
	fmt.Println(got)
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
	return nil
}

// TestHeldNamespaces: all users that a command may be have no more than the bound together.
func TestHeldNamespaces(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	l := launchertest.Sandboxed(t, nil)
	for kind, most := range map[string]int{"ipc": sandbox.MostNamespaces, "mnt": sandbox.MostMountNamespaces} {
		cmd := abuse(t, "hoard namespaces", kind)
		cmd.User = launchertest.OwnIDs
		launchertest.OpenParents(t, cmd.Dir)
		var first, second int
		said := launchertest.Say(t, l, cmd)
		if _, err := fmt.Sscanf(said, "got %d %d", &first, &second); err != nil {
			t.Fatalf("%s: said %q", kind, said)
		}
		if first < most/2 || first+second > most {
			t.Errorf("%s: got %d and then %d", kind, first, second)
		}
	}
}

// TestNoRoomForFilters: a command of a user of the machine starts also while others have all the
// room for filters that users have.
func TestNoRoomForFilters(t *testing.T) {
	const limit = "/proc/sys/net/core/bpf_jit_limit"
	was, err := os.ReadFile(limit)
	if err != nil {
		t.Skip(err) // this kernel interprets filters
	}
	l := launchertest.Sandboxed(t, nil)
	cmd := launchertest.Command(t, "/bin/true")
	cmd.User = &sandbox.User{UID: 65534, GID: 65534}
	launchertest.OpenParents(t, cmd.Dir)
	if r := launchertest.Run(t, l, cmd); r.ExitCode != 0 { // this also has the launcher create what it keeps
		t.Fatalf("%+v", r)
	}
	if err := os.WriteFile(limit, []byte("1"), 0); err != nil {
		t.Skip(err) // as in a container
	}
	defer func() {
		if err := os.WriteFile(limit, was, 0); err != nil {
			t.Error(err)
		}
	}()
	if r := launchertest.Run(t, l, cmd); r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
}
