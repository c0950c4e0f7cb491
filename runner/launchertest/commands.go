package launchertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
)

// OwnIDs is the default user of commands: root of a user namespace, and nobody outside.
var OwnIDs = &sandbox.User{UID: 1900000000, GID: 1900000000, IDs: 65536}

// Slot makes a slot in a cgroup hierarchy; version 0 is the better one.
func Slot(t testing.TB, version int) *cgroup.Slot {
	t.Helper()
	folder := t.TempDir() // another one for each call
	name := filepath.Base(filepath.Dir(folder)) + "-" + filepath.Base(folder)
	p, err := cgroup.Open(cgroup.Options{Name: fmt.Sprintf("test-%d-%s", os.Getpid(), name), Version: version})
	if errors.Is(err, cgroup.ErrUnavailable) {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := p.Slot("0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if pids, err := s.Pids(); err != nil || len(pids) > 0 {
			t.Errorf("group has %v, %v", pids, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Plain starts a launcher whose commands see the machine.
func Plain(t testing.TB, slot *cgroup.Slot) *runner.Launcher {
	t.Helper()
	return Start(t, runner.LauncherOptions{Cgroup: slot})
}

// Sandboxed starts a launcher whose commands are in namespaces.
func Sandboxed(t testing.TB, slot *cgroup.Slot, hide ...string) *runner.Launcher {
	t.Helper()
	return Start(t, runner.LauncherOptions{Cgroup: slot, Sandbox: &sandbox.Options{Hide: hide}})
}

// Start starts a launcher, which ends with the test.
func Start(t testing.TB, o runner.LauncherOptions) *runner.Launcher {
	t.Helper()
	o.Logger = zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	l, err := runner.StartLauncher(t.Context(), o)
	if errors.Is(err, sandbox.ErrUnavailable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l
}

// EachKind runs a test without a group and in a group of each cgroup version, with
// and without a sandbox.
func EachKind(t *testing.T, f func(t *testing.T, l *runner.Launcher)) {
	t.Run("tree", func(t *testing.T) { f(t, Plain(t, nil)) })
	for _, v := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { f(t, Plain(t, Slot(t, v))) })
	}
	t.Run("sandbox", func(t *testing.T) { f(t, Sandboxed(t, nil)) })
	for _, v := range []int{1, 2} {
		t.Run(fmt.Sprintf("sandbox v%d", v), func(t *testing.T) { f(t, Sandboxed(t, Slot(t, v))) })
	}
}

// Command returns a command whose output goes to files in a folder of the test.
func Command(t testing.TB, args ...string) runner.Command {
	dir := t.TempDir()
	return runner.Command{
		Args: args, Env: []string{Mark(), "PATH=" + runner.DefaultPath}, Dir: dir,
		Stdout: filepath.Join(dir, "stdout"), Stderr: filepath.Join(dir, "stderr"),
		Grace: 200 * time.Millisecond,
	}
}

// Shell returns a Command that runs a script.
func Shell(t testing.TB, script string) runner.Command { return Command(t, "/bin/sh", "-c", script) }

// Read returns the content of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Run runs a command, completed, to its end.
func Run(t testing.TB, l *runner.Launcher, c runner.Command) runner.Result {
	t.Helper()
	r, err := l.Run(t.Context(), Complete(t, l, c))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Complete adds to c what a sandbox needs, if l has one.
func Complete(t testing.TB, l *runner.Launcher, c runner.Command) runner.Command {
	t.Helper()
	if l.Sandbox() != nil && c.TempDir == "" {
		if c.Root == "" {
			c.Root = c.Dir
		}
		c.TempDir = t.TempDir()
		if err := os.Chmod(c.TempDir, 0o1777); err != nil {
			t.Fatal(err)
		}
	}
	if c.User != nil && c.User.IDs > 0 && c.Namespace == nil {
		namespace, err := sandbox.UserNamespace(c.User)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = namespace.Close() })
		c.Namespace = namespace
	}
	return c
}

// OpenParents lets all users write to dir and pass on the way there, which t.TempDir
// does not.
func OpenParents(t testing.TB, dir string) {
	t.Helper()
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// Eventually polls until other processes have done something.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Mark is in the environment of every command of this test process.
func Mark() string { return fmt.Sprintf("LAUNCHERTEST_MARK=%d", os.Getpid()) }

// Left lists the living processes with the mark.
func Left() (left []string) {
	for _, pid := range processes() {
		dir := fmt.Sprintf("/proc/%d/", pid)
		env, err := os.ReadFile(dir + "environ")
		if f := stat(pid); err != nil || pid == os.Getpid() || f == nil || f[0] == "Z" {
			continue
		}
		if slices.Contains(strings.Split(string(env), "\x00"), Mark()) {
			cmdline, _ := os.ReadFile(dir + "cmdline") // only to be shown
			left = append(left, fmt.Sprintf("%d %q", pid, cmdline))
		}
	}
	return left
}

// AssertNothingLeft fails the test if a process of one of its commands lives.
func AssertNothingLeft(t testing.TB) {
	t.Helper()
	if left := Left(); len(left) > 0 {
		t.Errorf("left alive: %v", left)
	}
}

// LimitedSlot returns a Slot of one CPU and little memory.
func LimitedSlot(t testing.TB, version int) (*cgroup.Slot, cgroup.Limits) {
	t.Helper()
	machine, err := cgroup.Measure()
	if err != nil {
		t.Fatal(err)
	}
	limits := cgroup.Limits{CPUs: machine.CPUs[:1], Memory: 48 << 20, Pids: 100}
	slot := Slot(t, version)
	if err := slot.Limit(limits); err != nil {
		t.Fatal(err)
	}
	return slot, limits
}

// Say runs a script and returns its output.
func Say(t testing.TB, l *runner.Launcher, c runner.Command) string {
	t.Helper()
	r := Run(t, l, c)
	if r.Cause != runner.Exited || r.ExitCode != 0 {
		t.Fatalf("%+v: %s", r, Read(t, c.Stderr))
	}
	return strings.TrimSuffix(Read(t, c.Stdout), "\n")
}

// NeedUserNamespaces skips a test where root cannot make them.
func NeedUserNamespaces(t testing.TB) {
	t.Helper()
	f, err := sandbox.UserNamespace(OwnIDs)
	if err == nil {
		_ = f.Close()
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// Tree makes files (mode, contents) in the command's directory, its input root.
func Tree(t *testing.T, c *runner.Command, files map[string]string, mode os.FileMode) {
	t.Helper()
	c.Root = c.Dir
	for name, text := range files {
		path := filepath.Join(c.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
}
