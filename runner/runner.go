package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/sandbox"
)

// DefaultPath is searched for commands whose environment has no PATH. It does not
// depend on the worker's own environment.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin"

// DefaultGrace is the time between SIGTERM and SIGKILL when Command.Grace is 0.
const DefaultGrace = 5 * time.Second

var (
	// ErrLauncherDied means that the launcher process is gone; start another one.
	ErrLauncherDied = errors.New("launcher died")
	// ErrUnkillable means that processes outlived 15 seconds of SIGKILL, which only
	// uninterruptible sleep and a frozen cgroup can do. The launcher is given up with them,
	// and its process may stay until the kernel lets them go (Launcher.Gone).
	ErrUnkillable = errors.New("processes cannot be killed")
	// ErrBusy means that a command is running on this launcher already.
	ErrBusy = errors.New("launcher is busy")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("launcher is closed")
)

// Command is what to run. Paths are absolute.
type Command struct {
	Args []string // Args[0] is resolved as the package comment says
	Env  []string // "name=value", exactly what the command gets
	Dir  string   // working directory
	// Folders are what a command in a sandbox sees of its own. Without one it has the machine's
	// folders for temporary files, and Root, which may be empty, only shortens paths in Result.Err.
	sandbox.Folders
	sandbox.Policy // what it may do
	// Namespace is that of a User with IDs (sandbox.UserNamespace). It stays the caller's.
	Namespace *os.File
	Nice      int // added to the worker's own niceness

	Stdout, Stderr string // files to create; empty discards
	MaxOutputBytes int64  // per stream; the rest is dropped; 0 is no bound

	// Timeout is the time the command may take; 0 is no bound. What Stalled adds
	// while it runs does not count; it must not go down nor block. It may be nil.
	Timeout time.Duration
	Stalled func() time.Duration
	// MaxStalled bounds what Stalled may add; 0 is no bound.
	MaxStalled time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 is DefaultGrace.
	Grace time.Duration
	// Stuck is told which processes are still there five seconds after SIGKILL. It
	// is called once at most, by Run, and Run goes on when it returns. It may be nil.
	Stuck func(pids []int)
}

func (c *Command) validate() error {
	if !filepath.IsAbs(c.Dir) {
		return fmt.Errorf("working directory %q is not absolute", c.Dir)
	}
	for _, p := range []string{c.Stdout, c.Stderr} {
		if p != "" && !filepath.IsAbs(p) {
			return fmt.Errorf("output file %q is not absolute", p)
		}
	}
	if c.MaxOutputBytes < 0 || c.Timeout < 0 || c.Grace < 0 {
		return errors.New("negative bound")
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	return nil
}

// check says what c lacks, or asks too much, for a launcher with or without a sandbox.
func (c *Command) check(sandboxed bool) error {
	if !sandboxed {
		return c.CheckWithout()
	}
	if c.User != nil && c.User.IDs > 0 && c.Namespace == nil {
		return errors.New("a user with ids needs its user namespace")
	}
	_, err := c.Inside(c.Dir)
	return err
}

// Cause says why a command ended.
type Cause int

const (
	// Exited: by itself, with ExitCode.
	Exited Cause = iota
	// Signaled: by a signal that the runner did not send.
	Signaled
	// TimedOut: it took longer than Command.Timeout and was stopped.
	TimedOut
	// Cancelled: the context of Run ended and the command was stopped.
	Cancelled
	// NotStarted: there was no such command, or it could not be executed; Err says why.
	NotStarted
	// OutOfMemory: the kernel killed a process of it for want of memory, in the slot or
	// in the machine (Result.Group tells). What the command itself made of that, even
	// an exit with 0, means nothing.
	OutOfMemory
)

func (c Cause) String() string {
	names := [...]string{"exited", "signaled", "timed out", "cancelled", "not started", "out of memory"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Cause(%d)", int(c))
	}
	return names[c]
}

// Result is how a command ended. When TimedOut or Cancelled, ExitCode and Signal
// tell how the command took being stopped; when OutOfMemory, how it ended itself.
type Result struct {
	Cause Cause
	// ExitCode is the command's, or 128+n when signal n ended it; when NotStarted,
	// as in a shell, 127 if there is no such file and 126 if it cannot be executed.
	ExitCode int
	Signal   string // "SIGKILL" when a signal ended it; else empty
	// Usage is of the command and of those descendants that were waited for; nil
	// if nothing was started.
	Usage *resourceusage.POSIXResourceUsage
	// Group is what the slot's group counted, of all processes that there were; nil
	// without a group, or if nothing was started. Its CPU times are those in Usage, too.
	Group          *cgroup.Usage
	Started, Ended time.Time // of the command itself; zero if it was never tried
	// Truncated tells that output beyond MaxOutputBytes was dropped.
	StdoutTruncated, StderrTruncated bool
	Err                              string // why it was NotStarted
}
