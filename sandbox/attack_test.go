package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// attacks are programs that end with 0 if they succeeded, and with 1 if not. A command runs them in
// a sandbox, as root of the machine (Command.User nil) and as the default user.
var attacks = map[string]func(args []string) error{
	"read a secret": func([]string) error {
		for _, file := range []string{"/etc/shadow", "/etc/gshadow", "/root/.bashrc", "/etc/ssh/ssh_host_ed25519_key"} {
			if _, err := os.ReadFile(file); err == nil {
				return nil
			}
		}
		return errFailed
	},
	"read the machine's id": func([]string) error { _, err := os.ReadFile("/etc/machine-id"); return err },
	"list the homes": func([]string) error {
		if _, err := os.ReadDir("/root"); err == nil {
			return nil
		}
		if list, err := os.ReadDir("/home"); err == nil && len(list) > 0 {
			return nil
		}
		return errFailed
	},
	"read": func(args []string) error {
		if text, err := os.ReadFile(args[0]); err != nil || len(text) == 0 {
			return errFailed
		}
		return nil
	},
	"raise limits of cgroups": func([]string) error {
		return withCgroups(func(hierarchy string) error {
			return eachFile(hierarchy, map[string]string{
				"memory.limit_in_bytes": "-1", "pids.max": "max", "cpu.shares": "2", "memory.max": "max", "cgroup.procs": "0", "tasks": "0",
			})
		})
	},
	"make a cgroup": func([]string) error {
		return withCgroups(func(hierarchy string) error { return os.Mkdir(filepath.Join(hierarchy, "left"), 0o755) })
	},
	"io_uring": func([]string) error {
		var parameters [120]byte
		return call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&parameters)))
	},
	"bpf":         func([]string) error { return knows(call(unix.SYS_BPF, 0, 0, 0)) },
	"perf":        func([]string) error { return knows(call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0, 0)) },
	"userfaultfd": func([]string) error { return call(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1) },
	"add a key": func([]string) error {
		_, err := unix.AddKey("user", "forerunner-test", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING)
		return err
	},
	"read the session keyring": func([]string) error {
		_, err := unix.KeyctlInt(unix.KEYCTL_READ, unix.KEY_SPEC_SESSION_KEYRING, 0, 0, 0)
		return err
	},
	"kexec": func([]string) error { return knows(call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0)) },
	"vsock": func([]string) error { return call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
	// The kernel takes an int of it.
	"vsock by a long argument": func([]string) error {
		return call(unix.SYS_SOCKET, 1<<32|unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	},
	// Check whether the kernel has the family: every user may open AF_XDP sockets.
	"reach a rare family of sockets": func([]string) error {
		if err := call(unix.SYS_SOCKET, unix.AF_XDP, unix.SOCK_RAW, 0); err == unix.EAFNOSUPPORT {
			return err
		}
		return nil
	},
	"listen to devices": func([]string) error {
		return call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)
	},
	"listen to audit": func([]string) error {
		return knows(call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT))
	},
	"speak to whatever driver": func([]string) error {
		return knows(call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC))
	},
	"watch a file system": func([]string) error {
		return knows(call(unix.SYS_FANOTIFY_INIT, unix.FAN_CLOEXEC|unix.FAN_REPORT_FID, 0))
	},
	"open by handle": func([]string) error { return knows(call(unix.SYS_OPEN_BY_HANDLE_AT, ^uintptr(0), 0, 0)) },
	"have a key made": func([]string) error {
		_, err := unix.RequestKey("user", "forerunner-test", "", unix.KEY_SPEC_SESSION_KEYRING)
		return knows(err)
	},
	// The kernel takes all 64 bits of where its name is.
	"join a keyring by name": func([]string) error {
		return knows(call(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 1<<32))
	},
	"paste into a console": func([]string) error { return knows(call(unix.SYS_IOCTL, 0, unix.TIOCLINUX, 0)) },
	"take terminals": func([]string) error {
		for range 300 {
			if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err != nil {
				return err
			}
		}
		return nil
	},
	"make a network namespace": makeNetwork,
	"fill neighbours":          fillNeighbours,
	"leave a file in /dev":     func([]string) error { return os.WriteFile("/dev/left", nil, 0o644) },
	"old ABI":                  func([]string) error { return knows(call(0x40000000|unix.SYS_BPF, 0, 0, 0)) }, // of x32
	"interfaces of the machine": func([]string) error {
		if _, err := os.Stat("/sys/class/net"); err == nil {
			return nil
		}
		text, err := os.ReadFile("/proc/net/dev")
		if err == nil && strings.Count(string(text), "\n") > 3 {
			return nil
		}
		return errFailed
	},
	"freeze": func(args []string) error { // by whatever freezer there is
		return withCgroups(func(hierarchy string) error {
			return os.WriteFile(filepath.Join(hierarchy, "freezer.state"), []byte("FROZEN"), 0)
		})
	},
	"contexts of asynchronous input and output": func([]string) error {
		var context uint64
		return call(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)))
	},
	"make a context of a mount": makeMountContext,
	"become the machine's root": func([]string) error {
		if err := unix.Mount("none", "/sys", "sysfs", 0, ""); err == nil {
			return nil
		}
		return os.WriteFile("/proc/sys/kernel/panic", []byte("0"), 0)
	},
}

var errFailed = errors.New("failed")

// call makes a system call.
func call(number uintptr, a ...uintptr) error {
	var args [6]uintptr
	copy(args[:], a)
	if _, _, errno := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
		return errno
	}
	return nil
}

// knows makes of an error of arguments that there is the system call, which is as bad.
func knows(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return err
	}
	return nil
}

// withCgroups mounts what hierarchies there are in namespaces of its own, and tries f on each.
func withCgroups(f func(hierarchy string) error) error {
	if os.Getenv(insideVar) == "" {
		failed := errFailed
		for _, own := range []syscall.SysProcAttr{
			{Cloneflags: unix.CLONE_NEWCGROUP}, {Unshareflags: unix.CLONE_NEWCGROUP}, {},
		} {
			own.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS
			own.UidMappings, own.GidMappings = []syscall.SysProcIDMap{{Size: 1}}, []syscall.SysProcIDMap{{Size: 1}}
			c := exec.Command("/proc/self/exe", os.Args[1:]...)
			c.Env = append(os.Environ(), insideVar+"=1")
			c.SysProcAttr = &own
			out, err := c.CombinedOutput()
			if err == nil {
				return nil
			}
			failed = fmt.Errorf("%w; %w: %s", failed, err, out)
		}
		return failed
	}
	failed := errFailed
	for _, controller := range []string{"memory", "pids", "cpu", "cpuset", "freezer", "devices", "blkio", "cpuacct", "name=systemd", "2"} {
		dir, err := os.MkdirTemp("", "hierarchy")
		if err != nil {
			return err
		}
		if controller == "2" {
			err = unix.Mount("none", dir, "cgroup2", 0, "")
		} else {
			err = unix.Mount("none", dir, "cgroup", 0, controller)
		}
		if err == nil {
			err = f(dir)
		}
		if err == nil {
			return nil
		}
		failed = errors.Join(failed, err)
	}
	// Files that the machine shows anyway.
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"} {
		if f(dir) == nil {
			return nil
		}
	}
	return failed
}

// makeMountContext makes one in namespaces of its own, where it may mount: of a new file system, or
// of one that is there.
func makeMountContext([]string) error {
	if os.Getenv(insideVar) != "" {
		if _, err := unix.Fsopen("tmpfs", 0); err == nil {
			return nil
		}
		_, err := unix.Fspick(unix.AT_FDCWD, "/proc", 0)
		return err
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), insideVar+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func eachFile(dir string, texts map[string]string) error {
	for name, text := range texts {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString(text)
		_ = f.Close()
		if err == nil {
			return nil
		}
	}
	return errFailed
}

// TestAttacks: no attack works. Each is a program of its own, whose exit code says whether it did.
func TestAttacks(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	key := filepath.Join(t.TempDir(), "worker.key")
	if err := os.WriteFile(key, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/usr/local", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	shown := filepath.Join(dir, "worker.key")
	if err := os.WriteFile(shown, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	secret := fmt.Sprintf("/etc/python-sandbox-test-%d", os.Getpid()) // as a name that is shown
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(secret) })
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			l := launchertest.Sandboxed(t, launchertest.Slot(t, version), shown)
			for name, user := range map[string]*sandbox.User{"root": nil, "own": launchertest.OwnIDs, "user": {UID: 70000, GID: 70000}} {
				for attack := range attacks {
					if attack != "read" {
						tryAttack(t, l, name, user, attack)
					}
				}
				tryAttack(t, l, name, user, "read", key)
				tryAttack(t, l, name, user, "read", secret)
				tryAttack(t, l, name, user, "read", shown)
			}
		})
	}
}

// tryAttack runs an attack as user, and fails the test if the attack succeeds.
func tryAttack(t *testing.T, l *runner.Launcher, name string, user *sandbox.User, attack string, args ...string) {
	t.Run(strings.Join(append([]string{name, attack}, args...), "/"), func(t *testing.T) {
		cmd := abuse(t, attack, args...)
		cmd.Env = append(cmd.Env, attackVar+"=1")
		cmd.User, cmd.NoNetwork = user, true
		launchertest.OpenParents(t, cmd.Dir)
		if r := launchertest.Run(t, l, cmd); r.ExitCode != 1 {
			t.Errorf("the attack ended with %d: %s", r.ExitCode, launchertest.Read(t, cmd.Stdout))
		}
	})
}

// attackVar has this test binary end with 0 if the attack worked.
const attackVar = "SANDBOX_TEST_ATTACK"

func attackMain(name string) {
	attack := attacks[name]
	if name == "change its program" { // of the launcher, which TestAttacks does not execute
		attack = changeProgram
	}
	if err := attack(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestAllowedSystemCalls: a denied system call is allowed explicitly, for one command and not for
// the next.
func TestAllowedSystemCalls(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	for _, c := range []struct {
		allow []string
		code  int
	}{{nil, 1}, {[]string{"keyrings"}, 0}, {nil, 1}, {[]string{"keyrings", "perf"}, 0}} {
		cmd := abuse(t, "add a key")
		cmd.Env = append(cmd.Env, attackVar+"=1")
		cmd.Allow = c.allow
		if r := launchertest.Run(t, l, cmd); r.ExitCode != c.code {
			t.Errorf("allowing %v: exit code %d, %s", c.allow, r.ExitCode, launchertest.Read(t, cmd.Stdout))
		}
	}
	if fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW, 0); err == nil { // this kernel has the family
		_ = unix.Close(fd)
		cmd := abuse(t, "reach a rare family of sockets")
		cmd.Env = append(cmd.Env, attackVar+"=1")
		cmd.Allow = []string{"families"}
		if r := launchertest.Run(t, l, cmd); r.ExitCode != 0 {
			t.Errorf("allowing families of sockets: exit code %d, %s", r.ExitCode, launchertest.Read(t, cmd.Stdout))
		}
	}
	if err := sandbox.CheckAllowed([]string{"perf", "everything"}); err == nil || !strings.Contains(err.Error(), `"everything"`) {
		t.Errorf("got %v", err)
	}
}

// TestNotShown: an error about a program that the machine has but commands do not see says so.
// Files that are shown in addition exist.
func TestNotShown(t *testing.T) {
	dir, err := os.MkdirTemp("/var/lib", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(dir, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	hidden := launchertest.Sandboxed(t, nil)
	script := launchertest.Command(t, "./script")
	if err := os.WriteFile(filepath.Join(script.Dir, "script"), []byte("#!"+tool+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	byName := launchertest.Command(t, "tool")
	byName.Env = []string{"PATH=/usr/bin:" + dir}
	for _, c := range []runner.Command{launchertest.Command(t, tool), byName, script} {
		if r := launchertest.Run(t, hidden, c); r.Cause != runner.NotStarted || !strings.Contains(r.Err, "add "+dir+" to tuning.show") {
			t.Errorf("%v: %+v", c.Args, r)
		}
	}
	if r := launchertest.Run(t, hidden, launchertest.Command(t, "/no/such/tool")); strings.Contains(r.Err, "tuning.show") {
		t.Errorf("got %q", r.Err)
	}
	// Files that only root can reach are not reported as existing.
	private := filepath.Join(dir, "private")
	if err := errors.Join(os.Mkdir(private, 0o700), os.WriteFile(filepath.Join(private, "tool"), nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	if r := launchertest.Run(t, hidden, launchertest.Command(t, filepath.Join(private, "tool"))); strings.Contains(r.Err, "tuning.show") {
		t.Errorf("of a private folder commands are told %q", r.Err)
	}
	shown := launchertest.Start(t, runner.LauncherOptions{Sandbox: &sandbox.Options{Show: []string{dir}}})
	if r := launchertest.Run(t, shown, launchertest.Command(t, tool)); r.ExitCode != 3 {
		t.Errorf("shown: %+v", r)
	}
	root := filepath.Join(dir, "root")
	if err := os.Symlink("/", root); err != nil {
		t.Fatal(err)
	}
	for _, sb := range []*sandbox.Options{
		{Show: []string{dir}, Hide: []string{dir}},
		{Show: []string{"/no/such/folder"}},
		{Show: []string{"/"}},
		{Show: []string{"/var/tmp"}},
		{Show: []string{root}},
		{Show: []string{"/proc/self/root"}},
		{Show: []string{"/dev/null"}},
		{Show: []string{"/proc/version"}},
	} {
		if l, err := runner.StartLauncher(t.Context(), runner.LauncherOptions{Sandbox: sb}); err == nil {
			t.Errorf("%+v started: %v", sb, l.Close(t.Context()))
		}
	}
}
