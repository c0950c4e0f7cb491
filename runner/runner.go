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

// Command describes a command to run. Paths are absolute.
type Command struct {
	Args []string // Args[0] is resolved as the package comment says
	Env  []string // "name=value", the exact environment of the command
	Dir  string   // working directory
	// Folders are what a command in a sandbox sees of its own. Without one it has the machine's
	// folders for temporary files, and Root, which may be empty, only shortens paths in Result.Err.
	sandbox.Folders
	sandbox.Policy // the rights of the command
	// Namespace is the user namespace of a User with IDs (sandbox.UserNamespace). The caller closes
	// it.
	Namespace *os.File
	Nice      int // added to the worker's own niceness

	Stdout, Stderr string // files to create; empty discards
	MaxOutputBytes int64  // per stream; further output is dropped; 0 is no limit

	// Timeout is the time the command may take; 0 is no limit. Time that Stalled adds while it runs
	// does not count. Stalled must neither decrease nor block, and may be nil.
	Timeout time.Duration
	Stalled func() time.Duration
	// MaxStalled limits the time that Stalled may add; 0 is no limit.
	MaxStalled time.Duration
	// Grace is the time between SIGTERM and SIGKILL; 0 is DefaultGrace.
	Grace time.Duration
	// Stuck is called with the processes that are still alive five seconds after SIGKILL. Run calls
	// it at most once, and continues when it returns. It may be nil.
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

// Cause is the reason why a command ended.
type Cause int

const (
	// Exited: it ended by itself, with ExitCode.
	Exited Cause = iota
	// Signaled: a signal that the runner did not send ended it.
	Signaled
	// TimedOut: it took longer than Command.Timeout and was stopped.
	TimedOut
	// Cancelled: the context of Run ended and the command was stopped.
	Cancelled
	// NotStarted: the command did not exist, or could not be executed; Err has the reason.
	NotStarted
	// OutOfMemory: the kernel killed a process of it because memory ran out, in the slot or in the
	// machine (Result.Group says which). The command's own reaction, even an exit with 0, means
	// nothing.
	OutOfMemory
)

func (c Cause) String() string {
	names := [...]string{"exited", "signaled", "timed out", "cancelled", "not started", "out of memory"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Cause(%d)", int(c))
	}
	return names[c]
}

// Result is the end of a command. After TimedOut or Cancelled, ExitCode and Signal describe how the
// command reacted to being stopped; after OutOfMemory, how it ended itself.
type Result struct {
	Cause Cause
	// ExitCode is the command's, or 128+n if signal n ended it. After NotStarted it is, as in a
	// shell, 127 if the file does not exist and 126 if it cannot be executed.
	ExitCode int
	Signal   string // such as "SIGKILL" if a signal ended it; else empty
	// Usage is the usage of the command and of those descendants that were waited for; nil if
	// nothing was started.
	Usage *resourceusage.POSIXResourceUsage
	// Group is the usage of all processes, as the slot's group counted it; nil without a group, or
	// if nothing was started. Usage has its CPU times, too.
	Group          *cgroup.Usage
	Started, Ended time.Time // of the command itself; zero if it was never tried
	// Truncated: output beyond MaxOutputBytes was dropped.
	StdoutTruncated, StderrTruncated bool
	Err                              string // the reason for NotStarted
}
