package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/sandbox"
)

const (
	// killMargin is how much longer than its own limits the worker waits for a launcher: the
	// command may have stopped it.
	killMargin = 3 * time.Second
	// orphanPatience limits the wait for the processes of a launcher that died or was killed.
	orphanPatience = 2 * time.Second
)

// LauncherOptions configures StartLauncher.
type LauncherOptions struct {
	// Cgroup is the group of the commands. It must be empty, and the caller closes it after the
	// launcher. Nil: only the process tree shows which processes belong to a command.
	Cgroup *cgroup.Slot
	// Sandbox isolates the commands in namespaces. Nil: they see everything that the worker sees.
	Sandbox *sandbox.Options
	Logger  *zap.Logger // nil logs nothing
	// Form is how the launcher writes lines of its own to standard error; empty: for people.
	Form logline.Form
}

// Launcher runs commands, one at a time, in its own process.
type Launcher struct {
	link *link
	// The launcher learns by stops what to stop, and by the ends of both that this process has died.
	messages, stops polledSocket
	proc            *os.Process
	slot            *cgroup.Slot
	// meter is of slot, and belongs to the goroutine that set busy; nil without a cgroup.
	meter *cgroup.Meter
	log   *zap.Logger

	sandbox  *sandbox.Options // nil: none
	notApart error

	replies chan message  // closed after the launcher process's last message
	gone    chan struct{} // closed when it is reaped, and nothing is left of its namespace
	quit    chan struct{} // closed by Close
	freed   func() error  // releases the resources of a launcher that is gone, once

	mu     sync.Mutex // guards the following
	busy   bool
	closed bool
	lastID uint64
}

// StartLauncher re-executes this binary as a launcher and waits until it is ready. The main
// function of the binary must begin with MainIfLauncher. Call it before the first FUSE mount is
// made; a dead launcher may be replaced later, because the binary and its working directory are on
// no such mount. An error that wraps sandbox.ErrUnavailable means that this machine supports it
// only without a sandbox.
func StartLauncher(ctx context.Context, o LauncherOptions) (*Launcher, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	l := &Launcher{
		slot: o.Cgroup, log: o.Logger, sandbox: o.Sandbox,
		replies: make(chan message, 4), gone: make(chan struct{}), quit: make(chan struct{}),
	}
	if err := l.spawn(o.Form); err != nil {
		return nil, fmt.Errorf("start launcher: %w", err)
	}
	l.freed = sync.OnceValue(l.free)
	go l.read()
	setup := message{Kind: kindSetup, Sandbox: o.Sandbox}
	if o.Cgroup != nil {
		slot := o.Cgroup.Handle()
		setup.Slot = &slot
		var err error
		if l.meter, err = o.Cgroup.Meter(); err != nil {
			return nil, errors.Join(fmt.Errorf("start launcher: %w", err), l.Close(ctx))
		}
	}
	if o.Sandbox != nil {
		terminals, err := o.Sandbox.Terminals()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start launcher: %w", sandbox.Unavailable(err)), l.Close(ctx))
		}
		defer terminals.Close()
		setup.addFile(fileTerminals, int(terminals.Fd()))
	}
	if err := l.handshake(ctx, setup); err != nil {
		return nil, errors.Join(fmt.Errorf("start launcher: %w", err), l.Close(ctx))
	}
	return l, nil
}

// connect makes the sockets of a launcher, and returns its ends.
func (l *Launcher) connect() (theirs []*os.File, err error) {
	var message, stop *os.File
	if l.messages, message, err = socketPair(); err != nil {
		return nil, err
	}
	if l.stops, stop, err = socketPair(); err != nil {
		return nil, errors.Join(err, l.messages.Close(), message.Close())
	}
	l.link = newLink(l.messages)
	return []*os.File{message, stop}, nil
}

func (l *Launcher) disconnect() error { return errors.Join(l.messages.Close(), l.stops.Close()) }

// spawn starts the process of l.
func (l *Launcher) spawn(form logline.Form) error {
	theirs, err := l.connect()
	if err != nil {
		return err
	}
	defer func() {
		for _, f := range theirs {
			_ = f.Close() // the process has its own
		}
	}()
	if l.proc, err = startProcess(theirs, l.sandbox != nil, form); err != nil {
		return errors.Join(err, l.disconnect())
	}
	return nil
}

// startProcess executes this program as a launcher with these sockets, in the order of controlFD and
// stopFD.
func startProcess(sockets []*os.File, sandboxed bool, form logline.Form) (*os.Process, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	program, files := "/proc/self/exe", append([]*os.File{null, os.Stderr, os.Stderr}, sockets...)
	if sandboxed {
		unchanging, err := sandbox.Program()
		if err != nil {
			return nil, sandbox.Unavailable(err)
		}
		defer unchanging.Close()
		program, files = fmt.Sprintf("/proc/self/fd/%d", len(files)), append(files, unchanging)
	}
	// Away from the terminal: Ctrl-C is for the worker, which then drains. A stopped launcher must
	// learn, too, that the worker has died.
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGCONT}
	if sandboxed {
		sys.Cloneflags = sandbox.CloneFlags
	}
	proc, err := parentOf().start(program, []string{launcherName, string(form)}, &os.ProcAttr{Dir: "/", Files: files, Sys: sys}, !sandboxed)
	if err != nil && sandboxed {
		err = sandbox.Unavailable(err)
	}
	return proc, err
}

// read passes on the launcher's messages until it is gone. The first process of a namespace is
// reaped after all others in it, which may be never.
func (l *Launcher) read() {
	defer close(l.gone)
	l.hear()
	// Its end of the socket is closed, so it is dead or about to exit.
	if err := parentOf().wait(l.proc); err != nil {
		l.log.Warn("cannot wait for the launcher", zap.Error(err))
	}
}

func (l *Launcher) hear() {
	defer close(l.replies)
	for {
		m, err := l.link.receive()
		if err != nil {
			return
		}
		select {
		case l.replies <- m:
		case <-l.quit:
		}
	}
}

func (l *Launcher) handshake(ctx context.Context, setup message) error {
	if err := l.link.send(setup); err != nil {
		return err
	}
	select {
	case m, ok := <-l.replies:
		switch {
		case !ok:
			return fmt.Errorf("%w: is MainIfLauncher the first call of main?", ErrLauncherDied)
		case m.NoSandbox:
			return fmt.Errorf("%w: %s", sandbox.ErrUnavailable, m.Fault)
		case m.Fault != "":
			return errors.New(m.Fault)
		}
		if m.NotApart != "" {
			l.notApart = errors.New(m.NotApart)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NotApart returns the reason why a command may pass descriptors to those of other launchers, by a
// socket of the abstract namespace; nil: it cannot. Without a network it never can.
func (l *Launcher) NotApart() error { return l.notApart }

// Sandbox returns the sandbox of the commands; nil: they have none.
func (l *Launcher) Sandbox() *sandbox.Options { return l.sandbox }

// Pid returns the number of the launcher process.
func (l *Launcher) Pid() int { return l.proc.Pid }

// Limits returns the limits of the slot's group; zero without a group.
func (l *Launcher) Limits() cgroup.Limits {
	if l.slot == nil {
		return cgroup.Limits{}
	}
	return l.slot.Limits()
}

// Processes returns the processes of the running command, in any order. Without a group it searches
// all processes of the machine, and the result may be slightly old.
func (l *Launcher) Processes() []int {
	if l.slot == nil {
		var pids []int
		for _, p := range membersOf(tableOf().latest(), l.proc.Pid, nil) {
			pids = append(pids, p.pid)
		}
		return pids
	}
	pids, err := l.slot.Pids()
	if err != nil {
		return nil // it has ended
	}
	return pids
}

// Run runs one command and returns when no process of it is alive, whether it ended by itself or
// because of its timeout or ctx. The Result says how the command ended. An error is a fault of the
// machinery: ErrLauncherDied and ErrUnkillable (start another launcher), ErrBusy, ErrClosed, an
// output file that cannot be written, or no memory, process or group to start the command. With
// ErrUnkillable and ErrLauncherDied, Result.Cause is TimedOut or Cancelled if the command was
// stopped for that, and the rest of the Result is meaningless.
func (l *Launcher) Run(ctx context.Context, c Command) (Result, error) {
	if err := errors.Join(c.validate(), c.check(l.sandbox != nil)); err != nil {
		return Result{}, fmt.Errorf("run command: %w", err)
	}
	id, err := l.acquire()
	if err != nil {
		return Result{}, fmt.Errorf("run command: %w", err)
	}
	defer l.release()
	if ctx.Err() != nil {
		return Result{Cause: Cancelled, ExitCode: exitCodeOf(unix.SIGTERM), Signal: "SIGTERM"}, nil
	}
	r := attempt{l: l, c: &c, id: id, clock: newClock(&c)}
	if l.meter != nil {
		if err := l.meter.Begin(); err != nil {
			return Result{}, fmt.Errorf("run command: %w", err)
		}
	}
	res, err := r.run(ctx)
	if err == nil && l.meter != nil {
		err = res.measure(l.meter)
	}
	if l.isClosed() {
		err = ErrClosed // the last messages were about being killed
	}
	if err != nil {
		return Result{Cause: res.Cause}, fmt.Errorf("run command: %w", err)
	}
	return res, nil
}

func (l *Launcher) acquire() (id uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return 0, ErrClosed
	case l.busy:
		return 0, ErrBusy
	}
	l.busy = true
	l.lastID++
	return l.lastID, nil
}

func (l *Launcher) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *Launcher) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
}

// Gone returns a channel that is closed when the launcher process has been reaped and, in a
// Sandbox, all remaining processes of its commands.
func (l *Launcher) Gone() <-chan struct{} { return l.gone }

// Close ends the launcher; a running command is killed without grace and its Run returns ErrClosed.
// Close returns when the launcher process is gone, or when ctx has ended, with an error that wraps
// ErrUnkillable: the kernel holds a process of it. Call Close again after Gone to release the rest.
// It is idempotent.
func (l *Launcher) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		// The launcher sees the end of both, kills and exits; its ends of the sockets stay open until
		// then, and hear waits for that.
		close(l.quit)
		if err := errors.Join(l.messages.CloseWrite(), l.stops.CloseWrite()); err != nil && !errors.Is(err, unix.ENOTCONN) {
			l.log.Warn("cannot stop the launcher", zap.Error(err))
			_ = l.proc.Kill() // it may be gone already
		}
	}
	overdue := time.NewTimer(unkillableAfter + killMargin)
	defer overdue.Stop()
	for {
		select {
		case <-l.gone:
			return l.freed()
		case <-overdue.C:
			_ = l.proc.Kill()
		case <-ctx.Done():
			_ = l.proc.Kill()
			return fmt.Errorf("close launcher: %w: %w", ErrUnkillable, ctx.Err())
		}
	}
}

// free closes the resources that Run no longer needs.
func (l *Launcher) free() error {
	var err error
	if l.meter != nil {
		err = l.meter.Close()
	}
	return errors.Join(err, l.disconnect())
}
