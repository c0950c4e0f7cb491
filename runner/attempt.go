package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/sandbox"
)

// attempt is one command as the worker sees it.
type attempt struct {
	l     *Launcher
	c     *Command
	id    uint64
	clock clock

	stopped bool
	cause   Cause            // why, once stopped
	overdue <-chan time.Time // the launcher does not react; set once stopped
}

func (a *attempt) run(ctx context.Context) (Result, error) {
	request, err := a.request()
	if err != nil {
		request.closeFiles()
		return Result{}, err
	}
	request.ID = a.id
	err = a.l.link.send(request)
	request.closeFiles()
	if err != nil {
		return Result{}, a.died(ctx, err)
	}
	cancelled, timer := ctx.Done(), a.clock.timer()
	var lost <-chan time.Time
	for {
		select {
		case m, ok := <-a.l.replies:
			if !ok {
				return a.given(), a.died(ctx, nil)
			}
			if m.ID != a.id {
				continue
			}
			if m.Kind == kindDone {
				return a.finish(ctx, m)
			}
			a.reportStuck(m.Pids)
		case <-cancelled:
			cancelled, timer = nil, nil
			a.stop(Cancelled)
		case <-timer:
			if timer = a.clock.timer(); a.clock.left() == 0 {
				timer, cancelled = nil, nil
				a.stop(TimedOut)
			}
		case <-a.overdue:
			a.l.log.Error("launcher does not react; killing it", zap.Int("pid", a.l.proc.Pid))
			_ = a.l.proc.Kill() // if it has already ended, replies closes anyway
			a.overdue = nil
			lost = time.After(orphanPatience)
		case <-lost: // a frozen process does not even die of SIGKILL
			return a.given(), fmt.Errorf("%w: the launcher, process %d", ErrUnkillable, a.l.proc.Pid)
		}
	}
}

// request makes the message that starts the command. The caller closes its descriptors, also after
// an error.
func (a *attempt) request() (message, error) {
	c := a.c
	r := &runRequest{
		Args: c.Args, Env: c.Env, Dir: c.Dir, Root: c.Root,
		MaxOutputBytes: c.MaxOutputBytes, Grace: c.Grace, Nice: c.Nice, Policy: c.Policy,
	}
	m := message{Kind: kindRun, Run: r}
	for _, o := range []struct {
		kind fileKind
		path string
	}{{fileStdout, c.Stdout}, {fileStderr, c.Stderr}} {
		if o.path == "" {
			continue
		}
		fd, err := unix.Open(o.path, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return m, &os.PathError{Op: "create output file", Path: o.path, Err: err}
		}
		m.addFile(o.kind, fd)
	}
	if a.l.sandbox == nil {
		return m, nil
	}
	var err error
	r.Mounts, err = sandbox.Take(c.Folders, &c.Policy)
	for _, mount := range r.Mounts {
		m.addFile(fileMount, mount.FD)
	}
	if err != nil {
		return m, err
	}
	if c.Namespace != nil { // a copy, as all of these are closed
		fd, err := unix.FcntlInt(c.Namespace.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return m, fmt.Errorf("copy the descriptor of a user namespace: %w", err)
		}
		m.addFile(fileNamespace, fd)
	}
	r.Root = sandbox.Root
	r.Dir, err = c.Inside(c.Dir)
	return m, err
}

func (a *attempt) stop(why Cause) {
	a.stopped, a.cause = true, why
	a.overdue = time.After(a.c.Grace + unkillableAfter + killMargin)
	if err := writeStop(a.l.stops, a.id); err != nil {
		_ = a.l.proc.Kill() // unreachable; replies closes when it has ended
	}
}

// given is the result of a command whose end will not be seen: it has the cause if it was stopped.
func (a *attempt) given() Result { return Result{Cause: a.cause} }

// mostPids is how many processes a message names: there may be as many as a slot can have.
const mostPids = 10

// listPids lists processes, up to a readable number.
func listPids(pids []int) string {
	if more := len(pids) - mostPids; more > 0 {
		return fmt.Sprintf("%v and %d more", pids[:mostPids], more)
	}
	return fmt.Sprint(pids)
}

func (a *attempt) reportStuck(pids []int) {
	a.l.log.Warn("processes do not end after SIGKILL; uninterruptible sleep, perhaps on a dead mount",
		zap.String("pids", listPids(pids)))
	if a.c.Stuck != nil {
		a.c.Stuck(pids)
	}
}

// died is the error for a launcher that has died, after its remains are killed.
func (a *attempt) died(ctx context.Context, cause error) error {
	err := ErrLauncherDied
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orphanPatience)
	defer cancel()
	if a.l.slot != nil {
		err = errors.Join(err, a.l.slot.Kill(ctx))
	}
	select {
	case <-a.l.gone:
		if a.l.sandbox == nil {
			err = errors.Join(err, parentOf().killOrphans(ctx))
		}
		return err
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("%w: the launcher, process %d, or one of its namespace", ErrUnkillable, a.l.proc.Pid))
	}
}

func (a *attempt) finish(ctx context.Context, m message) (Result, error) {
	if len(m.Pids) > 0 {
		err := fmt.Errorf("%w: %s", ErrUnkillable, listPids(m.Pids))
		if m.Done == nil || !m.Done.EndedBeingKilled {
			return Result{}, err // it ended by itself
		}
		return a.given(), err
	}
	if m.Fault != "" {
		return Result{}, errors.New(m.Fault)
	}
	if m.Done == nil {
		return Result{}, a.died(ctx, errors.New("malformed message"))
	}
	return a.result(m.Done), nil
}

func (a *attempt) result(o *outcome) Result {
	r := Result{
		Started: o.Started, Ended: o.Ended,
		StdoutTruncated: o.OutCut, StderrTruncated: o.ErrCut,
	}
	if o.NotStarted != "" {
		r.Cause, r.ExitCode, r.Err = NotStarted, o.ExitCode, o.NotStarted+a.notShown(o.Missing)
		return r
	}
	r.ExitCode = o.Status.ExitStatus()
	if o.Status.Signaled() {
		r.Cause = Signaled
		r.ExitCode = exitCodeOf(o.Status.Signal())
		r.Signal = signalName(o.Status.Signal())
	}
	if a.stopped && o.EndedBeingKilled {
		r.Cause = a.cause
	}
	r.Usage = usageOf(&o.Usage, r.Signal)
	return r
}

// notShown is the remedy if the command was not started because commands do not see a program that
// the machine has. missing is the missing interpreter, or empty.
func (a *attempt) notShown(missing string) string {
	if a.l.sandbox == nil {
		return ""
	}
	tried := []string{missing}
	if name := a.c.Args[0]; strings.Contains(name, "/") {
		tried = append(tried, name)
	} else {
		for _, dir := range filepath.SplitList(searchPath(a.c.Env)) {
			tried = append(tried, filepath.Join(dir, name))
		}
	}
	for _, path := range tried {
		if path = filepath.Clean(path); !a.l.sandbox.Lacks(path) {
			continue
		}
		if isForEveryone(path) {
			return fmt.Sprintf(" (the worker's machine has %s, but does not show it to commands: add %s to tuning.show in the worker's configuration)",
				path, filepath.Dir(path))
		}
	}
	return ""
}

// nobody is a user without any special rights.
const nobody = 65534

// isForEveryone reports whether path is a program that every user of the machine may execute. Of
// others a command is to learn nothing, not even that they are there.
func isForEveryone(path string) (is bool) {
	_ = withRights(&syscall.Credential{Uid: nobody, Gid: nobody}, func() error { // otherwise it is not known, and not named
		info, err := os.Stat(path)
		is = err == nil && info.Mode().IsRegular() && info.Mode()&0o001 != 0
		return err
	})
	return is
}

// measure adds the figures of the slot's cgroup, and determines by them whether memory was the
// cause. A command that could not be started has none.
func (r *Result) measure(m *cgroup.Meter) error {
	used, err := m.End()
	if err != nil || r.Cause == NotStarted {
		return err
	}
	r.Group = &used
	r.Usage.UserTime, r.Usage.SystemTime = durationpb.New(used.User), durationpb.New(used.System)
	if used.OOMKills > 0 && r.Cause != Cancelled {
		r.Cause = OutOfMemory
	}
	return nil
}

// exitCodeOf is a shell's exit code for a command that a signal killed.
func exitCodeOf(s syscall.Signal) int { return 128 + int(s) }

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIG%d", int(s)) // real-time signals have no names
}

func usageOf(u *syscall.Rusage, signal string) *resourceusage.POSIXResourceUsage {
	return &resourceusage.POSIXResourceUsage{
		UserTime:                   durationpb.New(time.Duration(u.Utime.Nano())),
		SystemTime:                 durationpb.New(time.Duration(u.Stime.Nano())),
		MaximumResidentSetSize:     u.Maxrss * 1024,
		PageReclaims:               u.Minflt,
		PageFaults:                 u.Majflt,
		Swaps:                      u.Nswap,
		BlockInputOperations:       u.Inblock,
		BlockOutputOperations:      u.Oublock,
		MessagesSent:               u.Msgsnd,
		MessagesReceived:           u.Msgrcv,
		SignalsReceived:            u.Nsignals,
		VoluntaryContextSwitches:   u.Nvcsw,
		InvoluntaryContextSwitches: u.Nivcsw,
		TerminationSignal:          strings.TrimPrefix(signal, "SIG"),
	}
}
