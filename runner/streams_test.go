package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// writerVar makes this test binary a command that does the steps that are its arguments.
const writerVar = "RUNNER_TEST_WRITER"

// A writer writes to its standard streams, each of which is a part of pattern.
type writer struct {
	fd      [2]int
	written [2]int
}

// pattern is text of which no two parts of nine bytes are equal.
func pattern(begin, end int) string {
	var b strings.Builder
	for i := begin / 8; i <= end/8; i++ {
		fmt.Fprintf(&b, "%07d\n", i)
	}
	return b.String()[begin%8:][:end-begin]
}

func writerMain(steps []string) error {
	runtime.LockOSThread() // a thread traces, not a process
	w := &writer{fd: [2]int{1, 2}}
	for _, step := range steps {
		var n int
		verb, number, ok := strings.Cut(step, " ")
		if ok {
			if _, err := fmt.Sscan(number, &n); err != nil {
				return err
			}
		}
		if err := w.step(verb, n); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func (w *writer) step(verb string, n int) (err error) {
	switch verb {
	case "out":
		return w.write(0, n)
	case "err":
		return w.write(1, n)
	case "bytes": // one at a time
		for range n {
			if err := w.write(0, 1); err != nil {
				return err
			}
		}
	case "size":
		if _, err = unix.FcntlInt(uintptr(w.fd[0]), unix.F_SETPIPE_SZ, n); err == unix.EBUSY {
			return nil // it has more than that
		}
	case "nonblocking":
		return unix.SetNonblock(w.fd[0], true)
	case "reopen":
		other, err := unix.Open("/dev/stdout", unix.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Dup3(other, w.fd[0], 0), unix.Close(other))
	case "close":
		return unix.Close(w.fd[0])
	case "leave": // a process with the streams
		other := exec.Command("sleep", "1000")
		other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		other.Stdout, other.Stderr = os.Stdout, os.Stderr
		return other.Start()
	case "die":
		return unix.Kill(unix.Getpid(), unix.SIGKILL)
	case "splice": // from a socket, as much as the pipe takes, and say how much that was
		return w.splice(n)
	case "trace": // the process of that number, which reads a line from the file "go" and ends
		if err := unix.PtraceSeize(n); err != nil {
			return err
		}
		if err := os.WriteFile("go", []byte("\n"), 0); err != nil {
			return err
		}
		var end unix.Siginfo
		return unix.Waitid(unix.P_PID, n, &end, unix.WEXITED|unix.WNOWAIT, nil)
	default:
		return errors.New("unknown")
	}
	return err
}

func (w *writer) write(stream, n int) error {
	for text := pattern(w.written[stream], w.written[stream]+n); len(text) > 0; {
		n, err := unix.Write(w.fd[stream], []byte(text))
		if err == unix.EAGAIN {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(w.fd[stream]), Events: unix.POLLOUT}}, -1)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		text = text[max(n, 0):]
		w.written[stream] += max(n, 0)
	}
	return nil
}

func (w *writer) splice(n int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4*n); err != nil {
		return err
	}
	begin := w.written[0]
	if n, err = unix.Write(pair[0], []byte(pattern(begin, begin+n))); err != nil {
		return err
	}
	for w.written[0] < begin+n {
		moved, err := unix.Splice(pair[1], nil, w.fd[0], nil, begin+n-w.written[0], unix.SPLICE_F_NONBLOCK)
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			return err
		}
		w.written[0] += int(moved)
	}
	fmt.Fprint(os.Stderr, w.written[0])
	return nil
}

// TestStreams: output is complete, in order and not doubled, whatever the command does with its
// descriptors.
func TestStreams(t *testing.T) {
	l := launchertest.Plain(t, nil)
	for _, c := range []struct {
		steps    []string
		limit    int64
		out, err int
	}{
		{steps: []string{"bytes 3000"}, out: 3000},
		{steps: []string{"out 8191"}, out: 8191},
		{steps: []string{"out 8192", "die"}, out: 8192},
		{steps: []string{"out 32768", "die"}, out: 32768},
		{steps: []string{"out 1", "out 65535", "die"}, out: 65536},
		{steps: []string{"out 1000000", "err 65536", "die"}, out: 1000000, err: 65536},
		{steps: []string{"err 70000", "out 5", "err 70000", "out 70000", "err 5"}, out: 70005, err: 140005},
		{steps: []string{"out 10", "size 1048576", "out 900000", "die"}, out: 900010},
		{steps: []string{"out 50000", "size 4096", "out 50000", "size 65536", "out 65536", "die"}, out: 165536},
		{steps: []string{"out 100", "nonblocking", "out 300000", "die"}, out: 300100},
		{steps: []string{"out 100", "reopen", "out 70000", "reopen", "out 1"}, out: 70101},
		{steps: []string{"out 9000", "close", "err 70000"}, out: 9000, err: 70000},
		{steps: []string{"out 1", "leave", "out 65535", "err 10"}, out: 65536, err: 10},
		{steps: []string{"out 900", "err 101", "out 200", "err 1", "bytes 100", "out 200000"}, limit: 1000, out: 1000, err: 102},
	} {
		t.Run(strings.Join(c.steps, ", "), func(t *testing.T) {
			cmd := launchertest.Command(t, append([]string{executable(t)}, c.steps...)...)
			cmd.Env = append(cmd.Env, writerVar+"=1", "GORACE="+os.Getenv("GORACE"))
			cmd.MaxOutputBytes = c.limit
			r := launchertest.Run(t, l, cmd)
			if dies := c.steps[len(c.steps)-1] == "die"; dies != (r.Cause == runner.Signaled) || !dies && r.ExitCode != 0 {
				t.Errorf("got %+v", r)
			}
			if got := launchertest.Read(t, cmd.Stdout); got != pattern(0, c.out) {
				t.Errorf("stdout has %d bytes, want %d, or others", len(got), c.out)
			}
			if got := launchertest.Read(t, cmd.Stderr); got != pattern(0, c.err) {
				t.Errorf("stderr has %d bytes, want %d, or others", len(got), c.err)
			}
			launchertest.AssertNothingLeft(t)
		})
	}
}

// TestSplicedOutput: what is spliced from a socket is in pieces larger than a page, so a pipe has
// more than its size.
func TestSplicedOutput(t *testing.T) {
	l := launchertest.Plain(t, nil)
	for range 10 {
		cmd := launchertest.Command(t, executable(t), "out 1", "splice 400000", "die")
		cmd.Env = append(cmd.Env, writerVar+"=1")
		launchertest.Run(t, l, cmd)
		var n int
		if _, err := fmt.Sscan(launchertest.Read(t, cmd.Stderr), &n); err != nil {
			t.Fatal(err)
		}
		if got := launchertest.Read(t, cmd.Stdout); got != pattern(0, n) {
			t.Errorf("stdout has %d bytes, want %d, or others", len(got), n)
		}
	}
}

// TestTracerWrites: a process that traces the command may write what the pipe does not take before
// it lets the launcher see the command's end.
func TestTracerWrites(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Command(t, "/bin/sh", "-c", `"$0" "trace $$" "err 300000" & read line <go; exit 7`, executable(t))
	cmd.Env = append(cmd.Env, writerVar+"=1", "GORACE="+os.Getenv("GORACE"))
	cmd.Timeout = 10 * time.Second // else it would hang
	if err := unix.Mkfifo(filepath.Join(cmd.Dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := launchertest.Run(t, l, cmd)
	if r.Cause != runner.Exited || r.ExitCode != 7 {
		t.Errorf("got %+v", r)
	}
	// It is killed once the launcher has seen that end.
	if got := launchertest.Read(t, cmd.Stderr); got != pattern(0, len(got)) {
		t.Errorf("stderr has others than the %d bytes", len(got))
	}
}

// TestSlowOutputFile: a command that ended before it was stopped has not been stopped, also if its
// output is still being written.
func TestSlowOutputFile(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Shell(t, "head -c 110000 /dev/zero; exit 3") // two pipes take it, one does not
	if err := unix.Mkfifo(cmd.Stdout, 0o600); err != nil {
		t.Fatal(err)
	}
	slow, err := os.OpenFile(cmd.Stdout, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan runner.Result, 1)
	go func() {
		r, err := l.Run(ctx, cmd)
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	launchertest.Eventually(t, "the pipe is full", func() bool {
		n, err := unix.IoctlGetInt(int(slow.Fd()), unix.TIOCINQ)
		return err == nil && n == 65536
	})
	launchertest.Eventually(t, "the command has ended", func() bool { return len(launchertest.Left()) == 0 })
	cancel()
	go func() {
		time.Sleep(50 * time.Millisecond) // for the launcher to hear of it
		_, _ = io.Copy(io.Discard, slow)
	}()
	if r := <-ended; r.Cause != runner.Exited || r.ExitCode != 3 {
		t.Errorf("got %+v", r)
	}
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
