package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

func TestHowCommandsEnd(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cases := []struct {
		script         string
		want           runner.Result
		stdout, stderr string
	}{
		{script: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
		{script: "exit 3", want: runner.Result{ExitCode: 3}},
		{script: "exit 255", want: runner.Result{ExitCode: 255}},
		{script: "kill -9 $$", want: runner.Result{Cause: runner.Signaled, ExitCode: 137, Signal: "SIGKILL"}},
		{script: "kill -SEGV $$", want: runner.Result{Cause: runner.Signaled, ExitCode: 139, Signal: "SIGSEGV"}},
		{script: "kill -40 $$", want: runner.Result{Cause: runner.Signaled, ExitCode: 168, Signal: "SIG40"}},
		{script: "kill -PIPE $$", want: runner.Result{Cause: runner.Signaled, ExitCode: 141, Signal: "SIGPIPE"}},
	}
	for _, c := range cases {
		t.Run(c.script, func(t *testing.T) {
			cmd := launchertest.Shell(t, c.script)
			before := time.Now()
			r := launchertest.Run(t, l, cmd)
			if r.Cause != c.want.Cause || r.ExitCode != c.want.ExitCode || r.Signal != c.want.Signal {
				t.Errorf("got %+v, want %+v", r, c.want)
			}
			if got := r.Usage.TerminationSignal; got != strings.TrimPrefix(c.want.Signal, "SIG") {
				t.Errorf("usage has signal %q", got)
			}
			if out, err := launchertest.Read(t, cmd.Stdout), launchertest.Read(t, cmd.Stderr); out != c.stdout || err != c.stderr {
				t.Errorf("stdout %q, stderr %q", out, err)
			}
			if r.Started.Before(before) || r.Ended.Before(r.Started) || r.Ended.After(time.Now()) {
				t.Errorf("started %v, ended %v", r.Started, r.Ended)
			}
		})
	}
}

func TestWhatACommandSees(t *testing.T) {
	// Dispositions that a worker may have inherited and must not pass on.
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE, unix.SIGUSR1, unix.SIGTSTP)
	defer signal.Reset(unix.SIGHUP, unix.SIGPIPE, unix.SIGUSR1, unix.SIGTSTP)
	leak, err := unix.Dup(0) // without CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	defer unix.Umask(unix.Umask(0o077))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var old unix.Sigset_t
	blocked := unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGUSR2 - 1)}}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &old); err != nil {
		t.Fatal(err)
	}
	l := launchertest.Plain(t, nil)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
		t.Fatal(err)
	}

	cases := []struct{ name, script, want string }{
		{"descriptors", `ls /proc/self/fd | tr '\n' ' '`, "0 1 2 3 "}, // 3 is ls's own
		{"standard input", `readlink /proc/$$/fd/0; cat`, "/dev/null\n"},
		{"umask", "umask", "0022\n"},
		{"file size limit", "ulimit -f", "unlimited\n"},
		{"session", "ps -o sid= -o pgid= -p $$ | tr -d ' \n' | sed s/$$/s/g", "ss"},
		{"no controlling terminal", "ps -o tty= -p $$", "?\n"},
	}
	t.Run("ignored and blocked signals", func(t *testing.T) {
		cmd := launchertest.Command(t, "grep", "-E", "SigBlk|SigIgn", "/proc/self/status") // shells reset some
		launchertest.Run(t, l, cmd)
		want := "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
		if out := launchertest.Read(t, cmd.Stdout); out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := launchertest.Shell(t, c.script)
			if r := launchertest.Run(t, l, cmd); r.Err != "" {
				t.Fatal(r.Err)
			}
			if out := launchertest.Read(t, cmd.Stdout); out != c.want {
				t.Errorf("got %q, want %q; stderr %q", out, c.want, launchertest.Read(t, cmd.Stderr))
			}
		})
	}
}

// The Go runtime raises the limit of open files for itself. Commands must get the original one, as
// any other child of this process does.
func TestOpenFilesLimitIsTheOriginal(t *testing.T) {
	l := launchertest.Plain(t, nil)
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "ulimit -S -n"},
		&os.ProcAttr{Files: []*os.File{nil, pw}})
	pw.Close()
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if _, err := want.ReadFrom(pr); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	cmd := launchertest.Shell(t, "ulimit -S -n")
	launchertest.Run(t, l, cmd)
	if got := launchertest.Read(t, cmd.Stdout); got != want.String() || got == "" {
		t.Errorf("got %q, want %q", got, want.String())
	}
}

func TestArgumentsAndEnvironmentAreExact(t *testing.T) {
	l := launchertest.Plain(t, nil)
	args := []string{"", "a b", "\n", "$x", "\xff\xfe", strings.Repeat("long", 20000)}
	cmd := launchertest.Command(t, append([]string{"/bin/sh", "-c", `cat /proc/$$/cmdline`, "name"}, args...)...)
	if r := launchertest.Run(t, l, cmd); r.ExitCode != 0 {
		t.Fatalf("%+v", r)
	}
	want := strings.Join(append(cmd.Args, ""), "\x00")
	if got := launchertest.Read(t, cmd.Stdout); got != want {
		t.Errorf("arguments: got %d bytes, want %d", len(got), len(want))
	}

	cmd = launchertest.Command(t, "/bin/cat", "/proc/self/environ")
	cmd.Env = []string{launchertest.Mark(), "A=1", "A=2", "EMPTY=", "odd", "BYTES=\xff"}
	launchertest.Run(t, l, cmd)
	want = strings.Join(append(cmd.Env, ""), "\x00")
	if got := launchertest.Read(t, cmd.Stdout); got != want {
		t.Errorf("environment: got %q, want %q", got, want)
	}
	cmd.Env = nil
	launchertest.Run(t, l, cmd)
	if got := launchertest.Read(t, cmd.Stdout); got != "" {
		t.Errorf("environment: got %q, want none", got)
	}
}

func TestOutputIsBounded(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cases := []struct {
		script       string
		limit        int64
		out, err     int
		outCut, eCut bool
	}{
		{"head -c 1000 /dev/zero", 1000, 1000, 0, false, false},
		{"head -c 1001 /dev/zero", 1000, 1000, 0, true, false},
		{"head -c 50000000 /dev/zero; echo x >&2", 100000, 100000, 2, true, false},
		{"head -c 10 /dev/zero >&2", 5, 0, 5, false, true},
		{"head -c 3000000 /dev/zero", 0, 3000000, 0, false, false},
	}
	for _, c := range cases {
		t.Run(c.script, func(t *testing.T) {
			cmd := launchertest.Shell(t, c.script)
			cmd.MaxOutputBytes = c.limit
			r := launchertest.Run(t, l, cmd)
			if r.ExitCode != 0 || r.StdoutTruncated != c.outCut || r.StderrTruncated != c.eCut {
				t.Errorf("got %+v", r)
			}
			out, err := len(launchertest.Read(t, cmd.Stdout)), len(launchertest.Read(t, cmd.Stderr))
			if out != c.out || err != c.err {
				t.Errorf("stdout %d, stderr %d bytes; want %d, %d", out, err, c.out, c.err)
			}
		})
	}
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Shell(t, "head -c 1000000 /dev/zero; exit 0")
	cmd.Stdout = "/dev/full"
	if _, err := l.Run(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("full disk: %v", err)
	}
	cmd.Stdout = filepath.Join(cmd.Dir, "no", "such", "folder")
	if _, err := l.Run(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no folder: %v", err)
	}
	cmd.Stdout, cmd.Stderr = "", ""
	if r := launchertest.Run(t, l, cmd); r.ExitCode != 0 || r.StdoutTruncated {
		t.Errorf("discarded: %+v", r)
	}
}

// A process that is not the command's holds the pipe open and keeps writing.
func TestOutputWithAForeignWriter(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Shell(t, "echo $$ >pid; echo out; read x <go; exit 0")
	fifo := filepath.Join(cmd.Dir, "go")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	type foreign struct {
		f   *os.File
		err error
	}
	opened := make(chan foreign, 1)
	go func() {
		gate, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the command to read
		if err != nil {
			opened <- foreign{nil, err}
			return
		}
		pid, err := os.ReadFile(filepath.Join(cmd.Dir, "pid"))
		if err != nil {
			opened <- foreign{nil, err}
			return
		}
		f, err := os.OpenFile(fmt.Sprintf("/proc/%s/fd/1", bytes.TrimSpace(pid)), os.O_WRONLY, 0)
		opened <- foreign{f, errors.Join(err, gate.Close())}
	}()
	r := launchertest.Run(t, l, cmd)
	got := <-opened
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer got.f.Close()
	if out := launchertest.Read(t, cmd.Stdout); r.ExitCode != 0 || out != "out\n" {
		t.Errorf("%+v, stdout %q", r, out)
	}
}

func TestUsage(t *testing.T) {
	l := launchertest.Plain(t, nil)
	// The child's work counts: it was waited for.
	cmd := launchertest.Shell(t, "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; head -c 40000000 /dev/zero | tail -c 40000000 >/dev/null")
	u := launchertest.Run(t, l, cmd).Usage
	if ms := u.UserTime.AsDuration().Milliseconds(); ms < 10 {
		t.Errorf("user time %d ms", ms)
	}
	if u.MaximumResidentSetSize < 40000000 || u.MaximumResidentSetSize > 1<<32 {
		t.Errorf("maximum resident set size %d bytes", u.MaximumResidentSetSize)
	}
	if u.VoluntaryContextSwitches == 0 || u.PageReclaims == 0 {
		t.Errorf("got %v", u)
	}
}

func TestTimeout(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cases := []struct {
		name, script string
		exit         int
		signal       string
		atLeast      time.Duration
	}{
		{"takes SIGTERM", "touch ready; sleep 1000; :", 143, "SIGTERM", 0},
		{"cleans up", "trap 'echo bye; exit 7' TERM; touch ready; sleep 1000 & wait", 7, "", 0},
		{"ignores SIGTERM", "trap '' TERM; touch ready; sleep 1000; :", 137, "SIGKILL", 200 * time.Millisecond},
		{"stopped", "touch ready; kill -STOP $$", 143, "SIGTERM", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := launchertest.Shell(t, c.script)
			cmd.Timeout, cmd.Stalled = 100*time.Millisecond, untilReady(&cmd)
			begin := time.Now()
			r := launchertest.Run(t, l, cmd)
			if r.Cause != runner.TimedOut || r.ExitCode != c.exit || r.Signal != c.signal {
				t.Errorf("got %+v", r)
			}
			if took := time.Since(begin); took < cmd.Timeout+c.atLeast || took > 2*time.Minute {
				t.Errorf("took %v", took)
			}
			launchertest.AssertNothingLeft(t)
		})
	}
	// The last stop must not hit the next command.
	if r := launchertest.Run(t, l, launchertest.Shell(t, "exit 4")); r.Cause != runner.Exited || r.ExitCode != 4 {
		t.Errorf("next command: %+v", r)
	}
}

// untilReady is Command.Stalled of a command whose time begins when it has made a file "ready".
func untilReady(cmd *runner.Command) func() time.Duration {
	begin, ready := time.Now(), filepath.Join(cmd.Dir, "ready")
	var stalled time.Duration
	var once sync.Once
	return func() time.Duration {
		if _, err := os.Stat(ready); err != nil {
			return time.Since(begin)
		}
		once.Do(func() { stalled = time.Since(begin) })
		return stalled
	}
}

func TestTimeoutStandsStillWhileStalled(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Shell(t, "sleep 0.6; exit 0")
	cmd.Timeout = 200 * time.Millisecond
	begin := time.Now()
	cmd.Stalled = func() time.Duration { return time.Hour + min(time.Since(begin), 5*time.Second) }
	if r := launchertest.Run(t, l, cmd); r.Cause != runner.Exited {
		t.Errorf("got %+v", r)
	}
	cmd.Stalled = func() time.Duration { return time.Hour }
	if r := launchertest.Run(t, l, cmd); r.Cause != runner.TimedOut {
		t.Errorf("nothing stalls: %+v", r)
	}
}

func TestCancel(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Shell(t, "trap 'exit 5' TERM; touch ready; while :; do sleep 0.01; done")
	cmd.Grace = time.Minute // a busy machine may take long to run the handler
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if _, err := os.Stat(filepath.Join(cmd.Dir, "ready")); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	r, err := l.Run(ctx, cmd)
	if err != nil || r.Cause != runner.Cancelled || r.ExitCode != 5 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := l.Run(ctx, cmd); err != nil || r.Cause != runner.Cancelled || r.Usage != nil {
		t.Errorf("cancelled before: %+v, %v", r, err)
	}
}

func TestInvalidCommands(t *testing.T) {
	l := launchertest.Plain(t, nil)
	for name, spoil := range map[string]func(*runner.Command){
		"relative directory": func(c *runner.Command) { c.Dir = "a" },
		"no directory":       func(c *runner.Command) { c.Dir = "" },
		"relative output":    func(c *runner.Command) { c.Stdout = "out" },
		"negative timeout":   func(c *runner.Command) { c.Timeout = -1 },
	} {
		cmd := launchertest.Shell(t, "exit 0")
		spoil(&cmd)
		if r, err := l.Run(t.Context(), cmd); err == nil {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}
