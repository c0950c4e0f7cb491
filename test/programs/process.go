package programs

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A Process is a started program.
type Process struct {
	Stdout, Stderr Output
	Exited         chan struct{} // closed when it has ended

	t   *testing.T
	cmd *exec.Cmd
}

// starts has the work of the thread that starts programs.
var starts = sync.OnceValue(func() chan<- func() {
	calls := make(chan func())
	go func() {
		runtime.LockOSThread() // for good
		for call := range calls {
			call()
		}
	}()
	return calls
})

// start starts a command from a thread that lives as long as this process: the kernel kills
// processes with a Pdeathsig when the thread that started them ends, and other threads may end
// earlier.
func start(cmd *exec.Cmd) (err error) {
	started := make(chan struct{})
	starts() <- func() {
		defer close(started)
		err = cmd.Start()
	}
	<-started
	return err
}

// An Output is the output of a process so far.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns the whole output.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Pid returns the process's id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal, unless the process has ended.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.cmd, err)
	}
}

// Wait returns the exit code of a process that ends by itself.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.Exited:
	case <-time.After(Timeout):
		p.t.Fatalf("%s still runs after %v", p.cmd, Timeout)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Drain ends a server, which must exit with 0.
func (p *Process) Drain() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 0 {
		p.t.Errorf("%s: exit code %d after SIGTERM, want 0", p.cmd, code)
	}
}

// Kill ends a process without notice.
func (p *Process) Kill() {
	p.t.Helper()
	p.Signal(syscall.SIGKILL)
	p.Wait()
}

// WaitFor waits until the process has printed a match.
func (p *Process) WaitFor(o *Output, want *regexp.Regexp) []string {
	p.t.Helper()
	for end := time.Now().Add(Timeout); ; time.Sleep(PollInterval) {
		if m := want.FindStringSubmatch(o.String()); m != nil {
			return m
		}
		select {
		case <-p.Exited:
			p.t.Fatalf("%s ended without printing %q", p.cmd, want)
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s did not print %q in %v", p.cmd, want, Timeout)
		}
	}
}

// Expect waits for a process and compares its exit code and output; of its standard error each text
// of stderr must be a part, and those that begin with "!" must not.
func (p *Process) Expect(code int, stdout string, stderr ...string) {
	p.t.Helper()
	if got := p.Wait(); got != code {
		p.t.Errorf("%s: exit code %d, want %d\n%s", p.cmd, got, code, &p.Stderr)
	}
	if got := p.Stdout.String(); got != stdout {
		p.t.Errorf("%s: standard output %q, want %q", p.cmd, got, stdout)
	}
	for _, part := range stderr {
		part, not := strings.CutPrefix(part, "!")
		if got := p.Stderr.String(); strings.Contains(got, part) == not {
			p.t.Errorf("%s: standard error with %q: %v, want %v\n%s", p.cmd, part, not, !not, got)
		}
	}
}
