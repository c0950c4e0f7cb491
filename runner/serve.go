package runner

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/sandbox"
)

const (
	// launcherName is the argv[0] of a launcher; an environment variable would have
	// to be kept out of the commands.
	launcherName = "forerunner-launcher"
	controlFD    = 3
	// collectAbove is how much heap a launcher may use before it collects garbage
	// between two commands.
	collectAbove = 16 << 20
)

// MainIfLauncher must be the first call of main, and of TestMain in packages that
// start launchers. In a process that was re-executed as a launcher it does the
// launcher's work and never returns; in every other it returns at once.
func MainIfLauncher() {
	if len(os.Args) == 0 || os.Args[0] != launcherName {
		return
	}
	if err := serveControl(); err != nil {
		logline.Form(os.Args[len(os.Args)-1]).Print(os.Stderr, "error", launcherName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// server is the launcher process.
type server struct {
	link     *link
	slot     *cgroup.Slot
	box      *sandbox.Box   // nil: none
	requests <-chan message // closed when the worker is gone
	shared   error          // why the commands may share sockets with others; nil: they do not
	// forkers are the threads that fork, by Policy.Thread of their commands; the first one is that
	// of most.
	forkers      map[string]*forker
	oomScore     []byte // of each command, at its start
	oomScoreFile int    // open, of this process
}

func serveControl() error {
	var st unix.Stat_t
	if err := unix.Fstat(controlFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("only a worker starts this (descriptor %d is not a socket)", controlFD)
	}
	lk, err := newLink(controlFD)
	if err != nil {
		return err
	}
	setup, err := lk.receive()
	if err != nil {
		return fmt.Errorf("receive setup: %w", err)
	}
	requests := make(chan message, 4)
	s := &server{
		link: lk, requests: requests, forkers: map[string]*forker{},
	}
	if setup.Slot != nil {
		s.slot = cgroup.Attach(*setup.Slot)
	}
	if err := s.prepare(&setup); err != nil {
		return lk.send(message{Kind: kindReady, Fault: err.Error(), NoSandbox: errors.Is(err, sandbox.ErrUnavailable)})
	}
	// No goroutine is waited for: the process ends with the main goroutine.
	go func() {
		defer close(requests)
		for {
			m, err := lk.receive()
			if err != nil {
				return
			}
			requests <- m
		}
	}()
	if err := lk.send(message{Kind: kindReady, NotApart: s.notApart()}); err != nil {
		return err
	}
	return s.serve()
}

// notApart says why the commands may share sockets with others; empty: they do not.
func (s *server) notApart() string {
	switch {
	case s.box == nil:
		return "they have no sandbox"
	case s.shared != nil:
		return s.shared.Error()
	}
	return ""
}

func (s *server) serve() error {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for m := range s.requests {
		if m.Kind != kindRun || m.Run == nil {
			continue // a stop for a command that has ended meanwhile
		}
		done := s.run(&m)
		if err := s.link.send(done); err != nil {
			return nil // the worker is gone, and nothing is left of the command
		}
		if len(done.Pids) > 0 {
			return fmt.Errorf("giving up: %w: %s", ErrUnkillable, listPids(done.Pids))
		}
		if metrics.Read(heap); heap[0].Value.Uint64() > collectAbove {
			runtime.GC()
		}
	}
	return nil
}

// prepare makes the process what commands are to inherit from.
func (s *server) prepare(setup *message) error {
	defer setup.closeFiles()
	// A thread that waits in vfork for an exec cannot be stopped for the collector, and keeps its
	// processor (P) meanwhile: hence no collections by themselves, and one more for the rest to go
	// on. With others that are idle the runtime looks for work on them, and wakes threads for it.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(2)

	if err := unix.CloseRange(controlFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w (Linux 5.11 is needed)", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	unix.Umask(0o022)
	if err := catchSignals(); err != nil {
		return err
	}
	if err := s.chooseOOMScore(); err != nil {
		return err
	}
	if setup.Sandbox != nil {
		if err := s.enterSandbox(setup); err != nil {
			return sandbox.Unavailable(err)
		}
	}
	if s.slot != nil {
		if err := s.slot.Settle(); err != nil {
			return err
		}
	}
	first, err := s.forker(&sandbox.Policy{})
	if err == nil && first.sandbox != nil {
		s.shared = first.sandbox.NotApart()
	}
	return err
}

// enterSandbox takes this process to where commands are to live.
func (s *server) enterSandbox(setup *message) error {
	groups, err := s.holdGroups()
	if err != nil {
		return err
	}
	var seen []sandbox.Cgroup
	for _, g := range groups {
		seen = append(seen, sandbox.Cgroup(g))
	}
	s.box, err = sandbox.Enter(setup.Sandbox, seen, setup.file(fileTerminals))
	return err
}

// holdGroups returns the cgroups that commands are to see, and keeps hold of those that this
// process needs: no others are in the new root.
func (s *server) holdGroups() ([]cgroup.Group, error) {
	if s.slot == nil {
		return cgroup.Groups(nil)
	}
	slot := s.slot.Handle()
	if err := s.slot.Hold(); err != nil {
		return nil, err
	}
	return cgroup.Groups(&slot)
}

// A forker is a thread that forks commands.
type forker struct {
	sandbox *sandbox.Thread // nil: none
	do      chan<- func()
}

// forker returns the thread for commands of this policy.
func (s *server) forker(p *sandbox.Policy) (*forker, error) {
	key := p.Thread()
	if f := s.forkers[key]; f != nil {
		return f, nil
	}
	do := make(chan func())
	f := &forker{do: do}
	go forkThread(do)
	made := make(chan error)
	do <- func() { made <- s.equip(f, p) }
	if err := <-made; err != nil {
		return nil, err
	}
	s.forkers[key] = f
	return f, nil
}

// equip makes the calling thread what commands are to inherit from.
func (s *server) equip(f *forker, p *sandbox.Policy) (err error) {
	if s.box != nil {
		if f.sandbox, err = s.box.Thread(p); err != nil {
			return sandbox.Unavailable(err)
		}
	}
	if s.slot != nil {
		return s.slot.SettleThread()
	}
	return nil
}

const oomScoreFile = "/proc/self/oom_score_adj"

// chooseOOMScore takes the worker's for the commands, unless it is negative, which the
// worker may have got from its service manager: when memory is short, commands go
// before the worker.
func (s *server) chooseOOMScore() error {
	text, err := os.ReadFile(oomScoreFile)
	if err != nil {
		return fmt.Errorf("read OOM score: %w", err)
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		return fmt.Errorf("read OOM score: %w", err)
	}
	s.oomScore = strconv.AppendInt(nil, int64(max(n, 0)), 10)
	if s.oomScoreFile, err = unix.Open(oomScoreFile, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open OOM score: %w", err)
	}
	return s.setOOMScore()
}

// setOOMScore makes it that of this process, from which commands inherit it. The last
// command may have raised it, being of the same user.
func (s *server) setOOMScore() error {
	if _, err := unix.Pwrite(s.oomScoreFile, s.oomScore, 0); err != nil {
		return fmt.Errorf("set OOM score: %w", err)
	}
	return nil
}

// A timer may wake a launcher's threads by launcherSlack late (PR_SET_TIMERSLACK(2const)). While a
// command starts, the Go runtime looks after its threads each 20 µs and the slack: with the usual
// one, which commands have, that cost a sixth of the launcher's CPU.
const (
	launcherSlack = 500 * time.Microsecond
	usualSlack    = 50 * time.Microsecond
)

// setTimerSlack sets that of the calling thread, and of those that it makes.
func setTimerSlack(d time.Duration) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	return nil
}

// forkThread runs what forks on one thread that lives as long as the process: the
// death of the forking thread is what PDEATHSIG tells the commands. Its signal mask
// is what they inherit.
//
// It is never the first thread of the process, whose groups are those that the
// launcher's own memory is charged to: the slot's, from then on.
func forkThread(forks <-chan func()) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go forkThread(forks)
		select {} // holds on to the first thread
	}
	var none unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil); err != nil {
		panic(fmt.Sprintf("clear signal mask: %v", err)) // no argument of it can be wrong
	}
	if err := setTimerSlack(usualSlack); err != nil {
		panic(err)
	}
	for f := range forks {
		f()
	}
}
