package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/sandbox"
)

// TestMain also asserts at the end that no process that a test started is left:
// each of their environments has the mark.
func TestMain(m *testing.M) {
	MainIfLauncher()
	helperMain()
	// With -race each launcher would sleep for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	code := m.Run()
	if left := marked(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	os.Exit(code)
}

// mark is in the environment of every command of this test process.
func mark() string { return fmt.Sprintf("RUNNER_TEST_MARK=%d", os.Getpid()) }

// marked lists the living processes with the mark, or with launchers' names below us.
func marked() []string {
	var left []string
	all, err := readProcesses()
	if err != nil {
		return []string{err.Error()}
	}
	for _, p := range all {
		dir := fmt.Sprintf("/proc/%d/", p.pid)
		env, err := os.ReadFile(dir + "environ")
		if err != nil || p.pid == os.Getpid() || p.state == 'Z' {
			continue
		}
		for _, kv := range strings.Split(string(env), "\x00") {
			if kv == mark() {
				cmdline, _ := os.ReadFile(dir + "cmdline") // only to be shown
				left = append(left, fmt.Sprintf("%d %q", p.pid, cmdline))
			}
		}
	}
	return left
}

func assertNothingLeft(t testing.TB) {
	t.Helper()
	if left := marked(); len(left) > 0 {
		t.Errorf("left alive: %v", left)
	}
}

// newSlot makes a slot in a cgroup hierarchy; version 0 is the better one.
func newSlot(t testing.TB, version int) *cgroup.Slot {
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

func newLauncher(t testing.TB, slot *cgroup.Slot) *Launcher {
	t.Helper()
	return startLauncher(t, LauncherOptions{Cgroup: slot})
}

// newSandbox is a launcher whose commands are in namespaces.
func newSandbox(t testing.TB, slot *cgroup.Slot, hide ...string) *Launcher {
	t.Helper()
	return startLauncher(t, LauncherOptions{Cgroup: slot, Sandbox: &sandbox.Options{Hide: hide}})
}

func startLauncher(t testing.TB, o LauncherOptions) *Launcher {
	t.Helper()
	o.Logger = zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
	l, err := StartLauncher(t.Context(), o)
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

// removeGroup removes what a killed worker left, as the next worker does.
func removeGroup(t testing.TB, version int, name string) {
	t.Helper()
	if version < 0 {
		return
	}
	var p *cgroup.Parent
	eventually(t, "the group can be taken over", func() (ok bool) {
		var err error
		p, err = cgroup.Open(cgroup.Options{Name: name, Version: version})
		return err == nil // threads of a dead process are counted until they are gone
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// eachKind runs a test without a group and in a group of each cgroup version, with
// and without a sandbox.
func eachKind(t *testing.T, f func(t *testing.T, l *Launcher)) {
	t.Run("tree", func(t *testing.T) { f(t, newLauncher(t, nil)) })
	for _, v := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { f(t, newLauncher(t, newSlot(t, v))) })
	}
	t.Run("sandbox", func(t *testing.T) { f(t, newSandbox(t, nil)) })
	for _, v := range []int{1, 2} {
		t.Run(fmt.Sprintf("sandbox v%d", v), func(t *testing.T) { f(t, newSandbox(t, newSlot(t, v))) })
	}
}

// command is one whose output goes to files in a folder of the test.
func command(t testing.TB, args ...string) Command {
	dir := t.TempDir()
	return Command{
		Args: args, Env: []string{mark(), "PATH=" + DefaultPath}, Dir: dir,
		Stdout: filepath.Join(dir, "stdout"), Stderr: filepath.Join(dir, "stderr"),
		Grace: 200 * time.Millisecond,
	}
}

func shell(t testing.TB, script string) Command { return command(t, "/bin/sh", "-c", script) }

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func run(t testing.TB, l *Launcher, c Command) Result {
	t.Helper()
	r, err := l.Run(t.Context(), sandboxed(t, l, c))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// sandboxed gives c what a sandbox needs, if l has one.
func sandboxed(t testing.TB, l *Launcher, c Command) Command {
	t.Helper()
	if l.sandbox != nil && c.TempDir == "" {
		if c.Root == "" {
			c.Root = c.Dir
		}
		c.TempDir = t.TempDir()
		if err := os.Chmod(c.TempDir, 0o1777); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// openParents lets all users write to dir and pass on the way there, which t.TempDir
// does not.
func openParents(t testing.TB, dir string) {
	t.Helper()
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// eventually polls for what other processes do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
