package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

func TestWhatACommandSeesInASandbox(t *testing.T) {
	hidden, err := os.MkdirTemp("/usr/local", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(hidden) })
	if err := os.Mkdir(filepath.Join(hidden, "store"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := launchertest.Sandboxed(t, nil, hidden, filepath.Join(hidden, "store"))
	cases := []struct{ name, script, want string }{
		{"input root", "pwd; ls", "/forerunner\nstderr\nstdout"},
		{"temporary folders", "ls /tmp; touch /tmp/left; ls /var/tmp", "left"},
		{"shared memory", "ls -A /dev/shm; touch /dev/shm/left", ""},
		{"other temporary folders", "ls /tmp /dev/shm", "/dev/shm:\n\n/tmp:"},
		{"hidden", "ls -A " + hidden, ""},
		{"what is in /run", "find -L /run -type s", ""},
		{"processes", fmt.Sprintf("kill -0 %d 2>/dev/null || echo alone", os.Getpid()), "alone"},
		{"parent", "echo $PPID", "1"},
		{"descriptors", `ls /proc/self/fd | tr '\n' ' '`, "0 1 2 3 "},
		{"devices", "ls /dev | tr '\\n' ' '", "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero "},
		{"terminals of its own", "script -qec 'tty' /dev/null </dev/null | tr -d '\\r'", "/dev/pts/0"},
		{"no new privileges", "grep NoNewPrivs /proc/self/status | cut -f2", "1"},
		{"user", "id -u", "0"},
		{"host name", "uname -n; cat /proc/sys/kernel/domainname /etc/hostname", "localhost\n(none)\nlocalhost"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := launchertest.Say(t, l, launchertest.Shell(t, c.script)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A data folder in /tmp, also behind a symlink, is as little to be seen as another.
func TestHiddenBelowTmp(t *testing.T) {
	hidden := t.TempDir()
	if err := os.WriteFile(filepath.Join(hidden, "blob"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	other, err := os.MkdirTemp("/usr/local", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	link := filepath.Join(other, "link")
	if err := os.Symlink(hidden, link); err != nil {
		t.Fatal(err)
	}
	for _, hide := range []string{hidden, link, "/tmp"} {
		l := launchertest.Sandboxed(t, nil, hide)
		if got := launchertest.Say(t, l, launchertest.Shell(t, "pwd; ls -A /tmp "+link+"/ 2>/dev/null; cat "+hide+"/blob "+hidden+"/blob 2>/dev/null || echo gone")); got != "/forerunner\n/tmp:\ngone" {
			t.Errorf("hiding %s: a command sees %q", hide, got)
		}
	}
}

// Two launchers run the same command in two roots: neither path nor anything else
// that they print differs.
func TestSamePathInEverySandbox(t *testing.T) {
	script := "pwd; echo $PWD; readlink /proc/self/cwd; cat input; ls -id /forerunner | grep -c forerunner"
	var said []string
	for range 2 {
		l := launchertest.Sandboxed(t, nil)
		cmd := launchertest.Shell(t, script)
		launchertest.Tree(t, &cmd, map[string]string{"sub/dir/input": "same\n"}, 0o644)
		cmd.Dir = filepath.Join(cmd.Root, "sub/dir")
		said = append(said, launchertest.Say(t, l, cmd))
	}
	if said[0] != said[1] || !strings.HasPrefix(said[0], "/forerunner/sub/dir\n/forerunner/sub/dir\n/forerunner/sub/dir\nsame\n") {
		t.Errorf("one said %q, the other %q", said[0], said[1])
	}
}

// A command in a sandbox writes to the folders that the worker reads.
func TestSandboxWritesToTheRootAndTempDir(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	cmd := launchertest.Complete(t, l, launchertest.Shell(t, "mkdir out && echo made >out/file && echo temp >/tmp/file"))
	launchertest.Say(t, l, cmd)
	if got := launchertest.Read(t, filepath.Join(cmd.Dir, "out/file")); got != "made\n" {
		t.Errorf("output %q", got)
	}
	if got := launchertest.Read(t, filepath.Join(cmd.TempDir, "file")); got != "temp\n" {
		t.Errorf("temporary file %q", got)
	}
}

// Another worker's roots are not in the sandbox, or it could not unmount them. A worker that has its
// folder where the new root is assembled does not keep others from a sandbox.
func TestNoRootsInASandbox(t *testing.T) {
	launchertest.Sandboxed(t, nil) // skips if this machine has no sandboxes
	for _, parent := range []string{"/usr/local", "/tmp"} {
		dir, err := os.MkdirTemp(parent, "sandbox-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if err := unix.Mount(names.MountSource, dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
		l, err := runner.StartLauncher(t.Context(), runner.LauncherOptions{Sandbox: &sandbox.Options{}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		if got := launchertest.Say(t, l, launchertest.Shell(t, "grep -c "+dir+" /proc/self/mountinfo || :")); got != "0" {
			t.Errorf("%s is mounted %s times", dir, got)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// System V memory and message queues outlive processes, but not a sandbox.
func TestNoMemoryIsLeftInASandbox(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	for i := range 2 {
		if got := launchertest.Say(t, l, launchertest.Shell(t, "ipcs -m -q -s | grep -c 0x; ipcmk -M 4096 -Q -S 1 >/dev/null; ipcs -m -q -s | grep -c 0x")); got != "0\n3" {
			t.Errorf("run %d: found and then had %q", i, got)
		}
	}
}

func TestNetworkOfASandbox(t *testing.T) {
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	_, port, err := net.SplitHostPort(outside.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	l := launchertest.Sandboxed(t, nil)
	for _, c := range []struct {
		noNetwork  bool
		port, want string
	}{{false, port, "connected"}, {true, port, "connection refused"}, {true, "0", "connected"}} {
		cmd := abuse(t, "connect", c.port)
		cmd.NoNetwork = c.noNetwork
		if got := launchertest.Say(t, l, cmd); !strings.Contains(got, c.want) {
			t.Errorf("without network %v, port %s: %q, want %q", c.noNetwork, c.port, got, c.want)
		}
	}
	interfaces := launchertest.Shell(t, "ls /proc/self/net/dev_snmp6 2>/dev/null || tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
	interfaces.NoNetwork = true
	if got := launchertest.Say(t, l, interfaces); got != "lo" {
		t.Errorf("interfaces %q", got)
	}
	cmd := launchertest.Shell(t, "true")
	cmd.NoNetwork = true
	if r, err := launchertest.Plain(t, nil).Run(t.Context(), cmd); err == nil {
		t.Errorf("without a sandbox: %+v", r)
	}
}

func TestUserOfACommand(t *testing.T) {
	const nobody = 65534
	launchertest.EachKind(t, func(t *testing.T, l *runner.Launcher) {
		cmd := launchertest.Shell(t, "id -u; id -g; id -G; touch mine; grep CapEff /proc/self/status | cut -f2; cat secret 2>/dev/null || echo denied")
		cmd.User = &sandbox.User{UID: nobody, GID: 12345, Groups: []uint32{7}}
		secret := filepath.Join(cmd.Dir, "secret")
		if err := os.WriteFile(secret, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		launchertest.OpenParents(t, cmd.Dir)
		if got := launchertest.Say(t, l, cmd); got != fmt.Sprintf("%d\n12345\n12345 7\n0000000000000000\ndenied", nobody) {
			t.Errorf("said %q", got)
		}
		if got := launchertest.Say(t, l, launchertest.Shell(t, "id -u")); got != "0" {
			t.Errorf("the next command is of user %s", got)
		}
	})
}

func TestNicenessOfACommand(t *testing.T) {
	l := launchertest.Plain(t, nil)
	own, err := strconv.Atoi(launchertest.Say(t, l, launchertest.Shell(t, "nice")))
	if err != nil {
		t.Fatal(err)
	}
	cmd := launchertest.Shell(t, "nice")
	cmd.Nice = 7
	if got := launchertest.Say(t, l, cmd); got != strconv.Itoa(min(own+7, 19)) {
		t.Errorf("niceness %s of %d and 7", got, own)
	}
	if got := launchertest.Say(t, l, launchertest.Shell(t, "nice")); got != strconv.Itoa(own) {
		t.Errorf("niceness of the next command: %s, was %d", got, own)
	}
}

// Changes that a command of root can make to the launcher do not affect the next command.
func TestOOMScoreOfTheNextCommand(t *testing.T) {
	launchertest.EachKind(t, func(t *testing.T, l *runner.Launcher) {
		const show = "cat /proc/self/oom_score_adj"
		before := launchertest.Say(t, l, launchertest.Shell(t, show))
		if got := launchertest.Say(t, l, launchertest.Shell(t, "echo 1000 >/proc/$PPID/oom_score_adj")); got != "" {
			t.Fatal(got)
		}
		if got := launchertest.Say(t, l, launchertest.Shell(t, show)); got != before {
			t.Errorf("out-of-memory score %s, was %s", got, before)
		}
	})
}

func TestInvalidCommandsInASandbox(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	for name, spoil := range map[string]func(*runner.Command){
		"no root":             func(c *runner.Command) { c.Root = "" },
		"no temporary folder": func(c *runner.Command) { c.TempDir = "" },
		"outside":             func(c *runner.Command) { c.Dir += "x" },
		"root is gone":        func(c *runner.Command) { c.Root += "/gone"; c.Dir = c.Root },
	} {
		cmd := launchertest.Complete(t, l, launchertest.Shell(t, "exit 0"))
		spoil(&cmd)
		if r, err := l.Run(t.Context(), cmd); err == nil {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

func TestFolderToHideMustBeThere(t *testing.T) {
	l, err := runner.StartLauncher(t.Context(), runner.LauncherOptions{Sandbox: &sandbox.Options{Hide: []string{"/no/such/folder"}}})
	if err == nil {
		t.Fatal(l.Close(t.Context()))
	}
	if !strings.Contains(err.Error(), "/no") {
		t.Errorf("got %v", err)
	}
}
