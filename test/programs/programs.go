package programs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// Timeout limits every wait for a program, PollInterval is the time between two polls.
	Timeout      = 4 * time.Minute
	PollInterval = 10 * time.Millisecond
)

// The output of the programs when they serve. In each line with an address the address is the first
// group.
var (
	UpLine     = regexp.MustCompile(`(?m)^build --remote_executor=grpc://(\S+)$`)
	ServesLine = regexp.MustCompile(`(?m)^serving on grpcs?://(\S+)$`)
	ReadyLine  = regexp.MustCompile(`worker is ready`)
)

// In the one case actions run as by default, in the other they write where the test does.
const (
	OwnSandbox  = "FORERUNNER_SANDBOX=auto"
	ShareFolder = "FORERUNNER_SANDBOX=none"
)

// A Test has the programs and a separate folder.
type Test struct {
	*testing.T
	Programs string   // folder of the programs
	Dir      string   // folder of the test; commands on workers see it with ShareFolder
	env      []string // variables for the programs

	user *syscall.Credential // the user of the programs; nil: ours
}

// New returns the environment of a test with workers, with environment variables for the programs.
// It ends the test (see Needs) if the machine lacks something.
func New(t *testing.T, env ...string) *Test {
	t.Helper()
	if os.Getuid() != 0 {
		Needs(t, "a worker needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		Needs(t, "a worker needs FUSE: %v", err)
	}
	return newTest(t, env)
}

func newTest(t *testing.T, env []string) *Test {
	t.Helper()
	f := &Test{T: t, Programs: Build(t), Dir: SharedDir(t), env: env}
	mind(t, f.Dir)
	return f
}

// nobody is a user without any rights.
const nobody = 65534

// NewOrdinary is like New, and runs the programs as an ordinary user.
func NewOrdinary(t *testing.T, env ...string) *Test {
	t.Helper()
	f := newTest(t, env)
	if os.Getuid() != 0 {
		return f
	}
	f.user = &syscall.Credential{Uid: nobody, Gid: nobody}
	programs := SharedDir(t) // the others are below a folder of root's
	err := errors.Join(os.CopyFS(programs, os.DirFS(f.Programs)), os.Chmod(programs, 0o755), os.Chmod(f.Dir, 0o755),
		os.Chown(f.Dir, nobody, nobody))
	if err != nil {
		t.Fatal(err)
	}
	f.Programs = programs
	return f
}

// As returns f with another user, who may only read the files of NewOrdinary. It ends the test if
// it cannot become another user.
func (f *Test) As(user uint32) *Test {
	f.Helper()
	if os.Getuid() != 0 {
		Needs(f.T, "to be another user needs root")
	}
	other := *f
	other.user = &syscall.Credential{Uid: user, Gid: user}
	return &other
}

// With returns f with further variables for the programs that it starts: FORERUNNER_SETTLE=5s is
// settle: 5s in the tuning section of their configuration file.
func (f *Test) With(env ...string) *Test {
	other := *f
	other.env = slices.Concat(f.env, env)
	return &other
}

// Start starts a program, one of ours unless it has a path. If it still runs at the end of the
// test, or the test is killed, it is killed.
func (f *Test) Start(args ...string) *Process {
	f.Helper()
	p := &Process{t: f.T, Exited: make(chan struct{})}
	program := args[0]
	if !filepath.IsAbs(program) {
		program = filepath.Join(f.Programs, program)
	}
	p.cmd = exec.Command(program, args[1:]...)
	p.cmd.Dir = f.Dir
	p.cmd.Env = append(os.Environ(), "FORERUNNER_SLOTS=2", "FORERUNNER_HTTP=", "FORERUNNER_SETTLE=0s")
	p.cmd.Env = append(p.cmd.Env, f.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.user, Pdeathsig: syscall.SIGKILL}
	if f.user != nil {
		p.cmd.Env = append(p.cmd.Env, "HOME="+f.Dir, "XDG_CACHE_HOME=", "TMPDIR=")
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.Stdout, &p.Stderr
	p.cmd.WaitDelay = Timeout
	if err := start(p.cmd); err != nil {
		f.Fatal(err)
	}
	go func() {
		defer close(p.Exited)
		_ = p.cmd.Wait() // ProcessState has the result
	}()
	f.Cleanup(func() {
		p.Signal(syscall.SIGKILL)
		<-p.Exited
		if f.Failed() {
			f.Logf("%s printed:\n%s%s", args, Tail(p.Stdout.String(), 50), Tail(p.Stderr.String(), 50))
		}
	})
	return p
}

// Up starts a farm below the data folder and returns it with its address.
func (f *Test) Up(data string, args ...string) (*Process, string) {
	f.Helper()
	f.Cleanup(func() { ExpectNoMounts(f.T, data) })
	p := f.Start(append([]string{"forerunner", "up", "--data", data, "--listen", "127.0.0.1:0"}, args...)...)
	return p, p.WaitFor(&p.Stdout, UpLine)[1]
}

// Exec starts "forerunner exec".
func (f *Test) Exec(address string, args ...string) *Process {
	f.Helper()
	return f.Start(append([]string{"forerunner", "exec", "--remote", address}, args...)...)
}

// Eventually polls until the condition holds.
func (f *Test) Eventually(what string, holds func() bool) {
	f.Helper()
	for end := time.Now().Add(Timeout); !holds(); time.Sleep(PollInterval) {
		if time.Now().After(end) {
			f.Fatalf("not in %v: %s", Timeout, what)
		}
	}
}

// WaitForFile waits until a file exists, which is usually made by an action.
func (f *Test) WaitForFile(name string) {
	f.Helper()
	f.Eventually(name+" exists", func() bool {
		_, err := os.Stat(name)
		return err == nil
	})
}

// Write makes a file in the folder of the test and returns its path.
func (f *Test) Write(name, text string) string {
	f.Helper()
	name = filepath.Join(f.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		f.Fatal(err)
	}
	return name
}

// Starts counts the starts of each action.
func (f *Test) Starts() map[string]int {
	f.Helper()
	text, err := os.ReadFile(filepath.Join(f.Dir, "starts"))
	if err != nil && !os.IsNotExist(err) {
		f.Fatal(err)
	}
	counts := map[string]int{}
	for name := range strings.FieldsSeq(string(text)) {
		counts[name]++
	}
	return counts
}

// Exists reports whether a file exists.
func (f *Test) Exists(name string) bool {
	_, err := os.Stat(filepath.Join(f.Dir, name))
	return err == nil
}
