package sandbox_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// abuseVar has this test binary, as a command, try what it names.
const abuseVar = "SANDBOX_TEST_ABUSE"

// abuseMain is called by TestMain.
func abuseMain() {
	name, ok := os.LookupEnv(abuseVar)
	if !ok {
		return
	}
	if what := os.Getenv(leaveVar); what != "" {
		leaveMain(what)
	}
	if os.Getenv(attackVar) != "" {
		attackMain(name)
	}
	said, err := "done", error(nil)
	if name == "connect" {
		said, err = connect(os.Args[1])
	} else if name == hoardName {
		err = hoard(os.Args[1])
	} else {
		err = abuses[name](os.Args[1:])
	}
	if err != nil {
		said = err.Error()
	}
	fmt.Println(said)
	os.Exit(0)
}

// abuse returns a command that tries something and reports the outcome.
func abuse(t *testing.T, name string, args ...string) runner.Command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := launchertest.Command(t, append([]string{"./tool"}, args...)...)
	if err := errors.Join(os.Chmod(cmd.Dir, 0o777), os.Symlink("tool", filepath.Join(cmd.Dir, "link"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(self, filepath.Join(cmd.Dir, "tool")); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, abuseVar+"="+name, "GORACE="+os.Getenv("GORACE"))
	return cmd
}

// connect dials a port of loopback; port 0 is one that it listens on itself.
func connect(port string) (string, error) {
	if port == "0" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
	}
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return "", err
	}
	return "connected", c.Close()
}

// abuses are attempts of a command to affect others.
var abuses = map[string]func(args []string) error{
	"fill sockets":     fillSockets,
	"hoard namespaces": hoardNamespaces,
	"hoard terminals":  hoardTerminals,
	"count terminals":  countTerminals,
	"name its keyring": func([]string) error {
		id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
		return errors.Join(fmt.Errorf("keyring %d", id), err)
	},
	"mount": func([]string) error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") },
	"unmount what hides": func(args []string) error {
		return unix.Unmount(args[0], unix.MNT_DETACH)
	},
	"make writable": func([]string) error {
		return unix.Mount("", "/usr", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	},
	// In a namespace of its own it may mount, but locked mounts stay.
	"unmount in a user namespace": func(args []string) error {
		return inUserNamespace("unmount what hides", args...)
	},
	"make writable in a user namespace": func([]string) error { return inUserNamespace("make writable") },
	"make a device": func([]string) error {
		if err := unix.Mknod("/tmp/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))); err != nil {
			return err
		}
		_, err := os.Open("/tmp/disk")
		return err
	},
	"open by handle": func([]string) error {
		handle, id, err := unix.NameToHandleAt(unix.AT_FDCWD, "/tmp", 0)
		if err != nil {
			return err
		}
		_ = id
		dir, err := os.Open("/tmp")
		if err != nil {
			return err
		}
		_, err = unix.OpenByHandleAt(int(dir.Fd()), handle, unix.O_RDONLY)
		return err
	},
	"trace":              func(args []string) error { return unix.PtraceAttach(number(args[0])) },
	"read memory":        func(args []string) error { return openOf(args[0], "mem") },
	"read environment":   func(args []string) error { return openOf(args[0], "environ") },
	"see another root":   func(args []string) error { _, err := os.ReadDir("/proc/" + args[0] + "/root/"); return err },
	"join a namespace":   joinNamespace,
	"signal":             func(args []string) error { return unix.Kill(number(args[0]), unix.SIGKILL) },
	"signal all":         func([]string) error { return unix.Kill(-1, unix.SIGKILL) },
	"type on a terminal": typeOnTerminal,
	"write":              func(args []string) error { return os.WriteFile(args[0], []byte("1"), 0o644) },
	"read":               func(args []string) error { _, err := os.ReadFile(args[0]); return err },
	"connect to a socket": func(args []string) error {
		c, err := net.Dial("unix", "@"+args[0])
		if err != nil {
			return err
		}
		return c.Close()
	},
	"connect to its own socket": func(args []string) error {
		l, err := net.Listen("unix", "@"+args[0])
		if err != nil {
			return err
		}
		defer l.Close()
		c, err := net.Dial("unix", "@"+args[0])
		if err != nil {
			return err
		}
		return c.Close()
	},
	"limit files": func(args []string) error {
		return unix.Prlimit(number(args[0]), unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil)
	},
	"send every signal": func(args []string) error {
		for range 50 { // some arrive while it handles others
			for sig := syscall.Signal(1); sig <= 64; sig++ {
				if err := unix.Kill(number(args[0]), sig); err != nil {
					return err
				}
			}
		}
		return nil
	},
	"set the clock":    func([]string) error { return unix.Settimeofday(&unix.Timeval{Sec: 1}) },
	"name the machine": func([]string) error { return unix.Sethostname([]byte("mine")) },
	"load a module":    func([]string) error { return unix.InitModule(nil, "") },
	"restart":          func([]string) error { return unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF) },
	"queue requests": func([]string) error {
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&[120]byte{})), 0)
		if errno != 0 {
			return errno
		}
		return unix.Close(int(fd))
	},
	"escape memory limits": func([]string) error {
		return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	},
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

func openOf(pid, file string) error {
	f, err := os.Open("/proc/" + pid + "/" + file)
	if err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 1))
	return err
}

func joinNamespace(args []string) error {
	fd, err := unix.Open("/proc/"+args[0]+"/ns/net", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// typeOnTerminal puts a character into the input of a terminal, as if typed.
func typeOnTerminal([]string) error {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	c := byte('x')
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, uintptr(unsafe.Pointer(&c))); errno != 0 {
		return errno
	}
	return nil
}

func inUserNamespace(name string, args ...string) error {
	c := exec.Command("./tool", args...)
	c.Env = append(os.Environ(), abuseVar+"="+name)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	said, err := c.Output()
	if err != nil {
		return err
	}
	return errors.New(strings.TrimSpace(string(said)))
}

// TestAbuse checks the table of docs/EXECUTION.md#sandbox. A command of root, the most powerful
// one, tries each abuse in a sandbox, while another command runs.
func TestAbuse(t *testing.T) {
	secrets, err := os.MkdirTemp("/usr/local", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(secrets) })
	blob := filepath.Join(secrets, "blob")
	if err := os.WriteFile(blob, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	other := otherSlot(t, launchertest.Sandboxed(t, nil), nil)
	slot := launchertest.Slot(t, 0)
	l := launchertest.Sandboxed(t, slot, secrets)
	const gone, denied, readOnly = "no such file or directory", "permission denied", "read-only file system"
	const notPermitted, noProcess = "operation not permitted", "no such process"
	cases := []struct {
		name string
		args []string
		want string
	}{
		{"mount", nil, notPermitted},
		{"unmount what hides", []string{secrets}, notPermitted},
		{"unmount in a user namespace", []string{secrets}, "invalid argument"},
		{"make writable", nil, notPermitted},
		{"make writable in a user namespace", nil, notPermitted},
		{"make a device", nil, notPermitted},
		{"open by handle", nil, notPermitted},
		{"trace", []string{"1"}, notPermitted},
		{"trace", []string{other.pid}, noProcess},
		{"read memory", []string{"1"}, denied},
		{"read environment", []string{"1"}, denied},
		{"see another root", []string{"1"}, denied},
		{"see another root", []string{other.pid}, gone},
		{"join a namespace", []string{"1"}, denied},
		{"signal", []string{other.pid}, noProcess},
		{"signal", []string{"1"}, "done"}, // which its first process does not notice
		{"signal all", nil, noProcess},    // there is no other process
		{"send every signal", []string{"1"}, "done"},
		{"limit files", []string{"1"}, notPermitted},
		{"read", []string{filepath.Join(other.root, "ready")}, gone},
		{"read", []string{blob}, gone},
		{"write", []string{blob}, readOnly},
		{"write", []string{"/etc/passwd"}, readOnly},
		{"write", []string{"/usr/bin/new"}, readOnly},
		{"write", []string{"/proc/sys/kernel/panic"}, readOnly},
		{"write", []string{filepath.Join(slot.Handle().Home, "cgroup.procs")}, gone},
		{"write", []string{ownCgroup(t, slot) + "/cgroup.procs"}, readOnly},
		{"write", []string{"/dev/null"}, "done"},
		{"type on a terminal", nil, "no such device or address"},
		{"set the clock", nil, notPermitted},
		{"name the machine", nil, notPermitted},
		{"restart", nil, notPermitted},
		{"escape memory limits", nil, denied},
		{"queue requests", nil, "function not implemented"}, // which would outlive it
	}
	for _, c := range cases {
		t.Run(strings.Join(append([]string{c.name}, c.args...), " "), func(t *testing.T) {
			if got := launchertest.Say(t, l, abuse(t, c.name, c.args...)); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	other.end(t)
}

// ownCgroup is where the commands of a slot find their group in the main hierarchy.
func ownCgroup(t *testing.T, slot *cgroup.Slot) string {
	t.Helper()
	place := slot.Handle()
	groups, err := cgroup.Groups(&place)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g.Dir == place.Dir {
			return g.Point
		}
	}
	t.Fatalf("%s is in none of %v", place.Dir, groups)
	return ""
}

// TestApart: a command can connect only to abstract sockets of its own slot, so that descriptors of
// its folders do not outlive it. Commands of a second launcher count as foreign, as does this
// process.
func TestApart(t *testing.T) {
	l := launchertest.Sandboxed(t, launchertest.Slot(t, 0))
	if err := l.NotApart(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err) // a kernel before Linux 6.12, or without Landlock
	}
	name := fmt.Sprintf("sandbox-test-%d", os.Getpid())
	socket, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, c := range []struct{ name, socket, want string }{
		{"connect to a socket", name, "operation not permitted"},
		{"connect to its own socket", name + "-own", "done"},
	} {
		if got := launchertest.Say(t, l, abuse(t, c.name, c.socket)); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if bare := launchertest.Plain(t, nil); bare.NotApart() == nil {
		t.Error("a launcher without a sandbox says that its commands are apart")
	}
}

// other is a command in a sandbox of its own, the prey of abuse.
type other struct {
	pid, root string
	end       func(t *testing.T) // asserts that nothing happened to it
}

func otherSlot(t *testing.T, l *runner.Launcher, u *sandbox.User) other {
	t.Helper()
	cmd := launchertest.Complete(t, l, launchertest.Shell(t, "touch ready; while ! [ -e go ]; do sleep 0.01; done; exit 5"))
	cmd.User = u
	launchertest.OpenParents(t, cmd.Dir)
	type ended struct {
		r   runner.Result
		err error
	}
	done := make(chan ended, 1)
	go func() {
		r, err := l.Run(t.Context(), cmd)
		done <- ended{r, err}
	}()
	launchertest.Eventually(t, "the other command runs", func() bool { _, err := os.Stat(filepath.Join(cmd.Dir, "ready")); return err == nil })
	return other{
		pid: strconv.Itoa(launchertest.ChildOf(t, l.Pid()).PID), root: cmd.Dir,
		end: func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(cmd.Dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if e := <-done; e.err != nil || e.r.ExitCode != 5 {
				t.Errorf("the other command: %+v, %v", e.r, e.err)
			}
		},
	}
}

// Without a sandbox two slots see each other, and their users keep them apart.
func TestUsersApart(t *testing.T) {
	other := otherSlot(t, launchertest.Plain(t, nil), &sandbox.User{UID: 70001, GID: 70001})
	l := launchertest.Plain(t, nil)
	const denied, notPermitted = "permission denied", "operation not permitted"
	for _, c := range []struct{ name, want string }{
		{"signal", notPermitted},
		{"trace", notPermitted},
		{"read memory", denied},
		{"read environment", denied},
		{"see another root", denied},
		{"join a namespace", denied},
	} {
		for whose, pid := range map[string]string{"command": other.pid, "launcher": strconv.Itoa(l.Pid())} {
			cmd := abuse(t, c.name, pid)
			cmd.User = &sandbox.User{UID: 70002, GID: 70002}
			launchertest.OpenParents(t, cmd.Dir)
			if got := launchertest.Say(t, l, cmd); !strings.Contains(got, c.want) {
				t.Errorf("%s of the %s: got %q, want %q", c.name, whose, got, c.want)
			}
		}
	}
	other.end(t)
}
