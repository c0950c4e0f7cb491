package forerunner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// needsMake skips a test where there is no make; in CI it fails.
func needsMake(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("make")
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}

// scripts writes executable scripts of the shell, by name, into a new folder.
func scripts(t *testing.T, texts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// patience is how long a condition may take, however busy the machine is.
const patience = 30 * time.Second

// becomes waits until a condition holds.
func becomes(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal(what)
		}
	}
}

// TestLintAndTest: the programs are built, however "make test" is combined.
func TestLintAndTest(t *testing.T) {
	needsMake(t)
	for _, goals := range []string{"test", "lint test", "test lint"} {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"-n"}, strings.Fields(goals)...)...)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=")
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "./cmd/forerunner-worker") {
			t.Errorf("make %s: %v, does not build the programs:\n%s", goals, err, out)
		}
	}
}

// TestInterrupted: staticcheck, which runs beside the tests, ends with an interrupted "make test".
func TestInterrupted(t *testing.T) {
	needsMake(t)
	dir := scripts(t, map[string]string{
		"go":          "case $1 in list) echo x/a;; test) echo >\"$0.tests\"; exec sleep 600;; esac\n",
		"staticcheck": "exec cat \"$0.lock\"\n",
	})
	held, tests := filepath.Join(dir, "staticcheck.lock"), filepath.Join(dir, "go.tests")
	if err := syscall.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-o", "compile", "-o", "unformatted", "-o", "test-needs",
		"GO="+filepath.Join(dir, "go"), "STATICCHECK="+filepath.Join(dir, "staticcheck"), "test")
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	checked, err := os.OpenFile(held, os.O_WRONLY, 0) // waits for staticcheck
	if err != nil {
		t.Fatal(err)
	}
	defer checked.Close()
	becomes(t, "no test begins", func() bool { _, err := os.Stat(tests); return err == nil })
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("an interrupted make test succeeds")
	}
	becomes(t, "staticcheck runs on", func() bool {
		_, err := checked.Write([]byte("x"))
		return errors.Is(err, syscall.EPIPE)
	})
	if left, _ := filepath.Glob(filepath.Join(dir, "tmp.*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestEndedTwice: a second signal, while .ci/run ends what it has started, leaves nothing behind.
func TestEndedTwice(t *testing.T) {
	dir := scripts(t, map[string]string{
		"go": "", "apt-get": "",
		"make": "trap 'echo ending; cat \"$0.lock\"; exit 1' TERM; echo $TMPDIR; while :; do sleep 0.1; done\n",
	})
	text, err := os.ReadFile(".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".ci"), 0o700); err != nil {
		t.Fatal(err)
	}
	script, lock := filepath.Join(dir, ".ci", "run"), filepath.Join(dir, "make.lock")
	if err := errors.Join(os.WriteFile(script, text, 0o700), syscall.Mkfifo(lock, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), script)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	says := func(n int) bool {
		b := make([]byte, 1000)
		read, err := out.Read(b)
		said += string(b[:read])
		return err != nil || strings.Count(said, "\n") >= n
	}
	becomes(t, "make does not begin", func() bool { return says(1) })
	temporary, _, _ := strings.Cut(said, "\n")
	if !strings.HasPrefix(temporary, "/var/tmp/ci.") {
		t.Fatalf("make has %q for temporary files", temporary)
	}
	t.Cleanup(func() {
		_ = syscall.Unmount(temporary, syscall.MNT_DETACH) // it is none if all is well
		_ = os.RemoveAll(temporary)
	})
	for n := range 2 {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			becomes(t, "make does not end", func() bool { return says(2) })
		}
	}
	unlock, err := os.OpenFile(lock, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	unlock.Close()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("%v, want exit code 143", err)
	}
	if _, err := os.Stat(temporary); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", temporary, err)
	}
}
