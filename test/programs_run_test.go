package test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	programTimeout = 4 * time.Minute // of whatever a program is waited for
	pollInterval   = 10 * time.Millisecond
)

var (
	upLine     = regexp.MustCompile(`(?m)^build --remote_executor=grpc://(\S+)$`)
	servesLine = regexp.MustCompile(`(?m)^serving on grpcs?://(\S+)$`)
	readyLine  = regexp.MustCompile(`worker is ready`)
)

// A farmTest has the programs, built once, and a folder of its own.
type farmTest struct {
	*testing.T
	programs string
	dir      string
	env      string              // one variable for the programs
	user     *syscall.Credential // whose programs they are; nil: ours
}

// buildPrograms builds all programs of the module and returns their folder.
func buildPrograms(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "../cmd/forerunner", "../cmd/forerunner-scheduler",
		"../cmd/forerunner-worker").CombinedOutput(); err != nil {
		t.Fatalf("build programs: %v\n%s", err, out)
	}
	return dir
}

// A process is a program that was started.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	exited         chan struct{} // closed when it has ended
}

// An output is what a process has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a program, one of ours unless it has a path. If it still runs at the end of the test, it is killed.
func (f *farmTest) start(args ...string) *process {
	f.Helper()
	p := &process{t: f.T, exited: make(chan struct{})}
	program := args[0]
	if !filepath.IsAbs(program) {
		program = filepath.Join(f.programs, program)
	}
	p.cmd = exec.Command(program, args[1:]...)
	p.cmd.Dir = f.dir
	p.cmd.Env = append(os.Environ(), "FORERUNNER_SLOTS=2", "FORERUNNER_HTTP=", "FORERUNNER_SETTLE=0s", f.env)
	if f.user != nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.user}
		p.cmd.Env = append(p.cmd.Env, "HOME="+f.dir, "XDG_CACHE_HOME=", "TMPDIR=")
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = programTimeout
	if err := p.cmd.Start(); err != nil {
		f.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // ProcessState tells
	}()
	f.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.exited
		if f.Failed() {
			f.Logf("%s printed:\n%s%s", args, tail(p.stdout.String(), 50), tail(p.stderr.String(), 50))
		}
	})
	return p
}

// up starts a farm below the data folder and returns it with its address.
func (f *farmTest) up(data string, args ...string) (*process, string) {
	f.Helper()
	f.Cleanup(func() { expectNoMounts(f.T, data) })
	p := f.start(append([]string{"forerunner", "up", "--data", data, "--listen", "127.0.0.1:0"}, args...)...)
	return p, p.waitFor(&p.stdout, upLine)[1]
}

// execRemote starts "forerunner exec".
func (f *farmTest) execRemote(address string, args ...string) *process {
	f.Helper()
	return f.start(append([]string{"forerunner", "exec", "--remote", address}, args...)...)
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("signal %s: %v", p.cmd, err)
	}
}

// wait returns the exit code of a process that ends by itself.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(programTimeout):
		p.t.Fatalf("%s still runs after %v", p.cmd, programTimeout)
	}
	return p.cmd.ProcessState.ExitCode()
}

// drain ends a server, which must exit with 0.
func (p *process) drain() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.t.Errorf("%s: exit code %d after SIGTERM, want 0", p.cmd, code)
	}
}

// kill ends a process without notice.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// waitFor waits until the process has printed what matches.
func (p *process) waitFor(o *output, want *regexp.Regexp) []string {
	p.t.Helper()
	for end := time.Now().Add(programTimeout); ; time.Sleep(pollInterval) {
		if m := want.FindStringSubmatch(o.String()); m != nil {
			return m
		}
		select {
		case <-p.exited:
			p.t.Fatalf("%s ended without printing %q", p.cmd, want)
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s did not print %q in %v", p.cmd, want, programTimeout)
		}
	}
}

// expect waits for a process and compares its exit code and output; of its standard error each
// text of stderr must be a part, and those that begin with "!" must not.
func (p *process) expect(code int, stdout string, stderr ...string) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("%s: exit code %d, want %d\n%s", p.cmd, got, code, &p.stderr)
	}
	if got := p.stdout.String(); got != stdout {
		p.t.Errorf("%s: standard output %q, want %q", p.cmd, got, stdout)
	}
	for _, part := range stderr {
		part, not := strings.CutPrefix(part, "!")
		if got := p.stderr.String(); strings.Contains(got, part) == not {
			p.t.Errorf("%s: standard error with %q: %v, want %v\n%s", p.cmd, part, not, !not, got)
		}
	}
}

// eventually polls until what holds.
func (f *farmTest) eventually(what string, holds func() bool) {
	f.Helper()
	for end := time.Now().Add(programTimeout); !holds(); time.Sleep(pollInterval) {
		if time.Now().After(end) {
			f.Fatalf("not in %v: %s", programTimeout, what)
		}
	}
}

// waitForFile waits until something, an action most likely, has made a file.
func (f *farmTest) waitForFile(name string) {
	f.Helper()
	f.eventually(name+" exists", func() bool {
		_, err := os.Stat(name)
		return err == nil
	})
}

// write makes a file in the folder of the test and returns its path.
func (f *farmTest) write(name, text string) string {
	f.Helper()
	name = filepath.Join(f.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		f.Fatal(err)
	}
	return name
}
