package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
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
	controlFD    = 3 // the socket for messages
	stopFD       = 4 // and the one by which the worker stops commands
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
	link   *link
	slot   *cgroup.Slot
	box    *sandbox.Box // nil: none
	shared error        // why the commands may share sockets with others; nil: they do not
	// forkers are the threads that fork, by Policy.Thread of their commands. The one that also takes
	// requests is that of most.
	forkers      map[string]*forker
	copier       *copier
	oomScore     []byte // of each command, at its start
	oomScoreFile int    // open, of this process

	ended chan error // gets the reason why the process ends; nil: the worker is gone

	mu      sync.Mutex
	current *job   // guarded by mu, as all below
	stopped uint64 // the last command that the worker stopped, which may not have come yet
	gone    bool   // the worker is
}

func serveControl() error {
	for _, fd := range []int{controlFD, stopFD} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			return fmt.Errorf("only a worker starts this (descriptor %d is not a socket)", fd)
		}
	}
	// The forking thread waits for requests by itself, so that no other has to wake it.
	lk := newLink(blockingSocket(controlFD))
	setup, err := lk.receive()
	if err != nil {
		return fmt.Errorf("receive setup: %w", err)
	}
	stops, err := newPolledSocket(stopFD)
	if err != nil {
		return err
	}
	s := &server{link: lk, forkers: map[string]*forker{}, ended: make(chan error, 2)}
	if setup.Slot != nil {
		s.slot = cgroup.Attach(*setup.Slot)
	}
	first, err := s.prepare(&setup)
	if err != nil {
		return lk.send(message{Kind: kindReady, Fault: err.Error(), NoSandbox: errors.Is(err, sandbox.ErrUnavailable)})
	}
	if s.copier, err = newCopier(); err != nil {
		return err
	}
	if err := lk.send(message{Kind: kindReady, NotApart: s.notApart()}); err != nil {
		return err
	}
	// No goroutine is waited for: the process ends with the main goroutine.
	go s.hearStops(stops)
	first.do <- func() {
		first.do = nil // all its calls come from here
		s.ended <- s.serve()
	}
	return <-s.ended
}

// hearStops does what the worker says by the second socket, whose end is that of the worker.
func (s *server) hearStops(stops io.Reader) {
	for {
		id, err := readStop(stops)
		if err != nil {
			s.lose()
			return
		}
		s.stop(id)
	}
}

// stop stops a command, even one that is still to come.
func (s *server) stop(id uint64) {
	s.mu.Lock()
	s.stopped = id
	j := s.current
	s.mu.Unlock()
	if j != nil && j.id == id {
		j.stop(terminate)
	}
}

// lose ends the launcher, whose worker is gone, as soon as nothing is left of the command.
func (s *server) lose() {
	s.mu.Lock()
	s.gone = true
	j := s.current
	s.mu.Unlock()
	if j == nil {
		s.ended <- nil
		return
	}
	j.stop(kill)
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

// serve does commands on the calling thread, a forking one, until the worker is gone.
func (s *server) serve() error {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	for {
		m, err := s.link.receive()
		if err != nil {
			return nil // the worker is gone
		}
		if m.Kind != kindRun || m.Run == nil {
			return fmt.Errorf("a message of kind %d", m.Kind)
		}
		done, used, here := s.run(&m)
		if !here {
			return nil
		}
		if err := s.link.send(done); err != nil {
			return nil // the worker is gone, and nothing is left of the command
		}
		// What can wait is done while the worker has the answer.
		_ = used.close() // the pipes are empty, and everything else is closed
		if s.box != nil {
			s.box.Settle()
		}
		if metrics.Read(heap); heap[0].Value.Uint64() > collectAbove {
			runtime.GC()
		}
	}
}

// run does one command, unless the worker is gone. It returns what the worker gets to know, and what
// to close after that.
func (s *server) run(m *message) (done message, used *outputs, here bool) {
	f, err := s.forkerOf(&m.Run.Policy)
	if err != nil {
		m.closeFiles()
		return message{Kind: kindDone, ID: m.ID, Fault: fmt.Sprintf("start command: %v", err)}, nil, true
	}
	j := newJob(s, m)
	s.mu.Lock()
	gone, stopped := s.gone, s.stopped == m.ID
	s.current = j
	s.mu.Unlock()
	if gone {
		return message{}, nil, false
	}
	if stopped {
		j.stop(terminate)
	}
	f.call(func() { done, used = j.run(f, m) })
	s.mu.Lock()
	s.current = nil
	s.mu.Unlock()
	return done, used, true
}

// giveUp ends the launcher, as processes of a command cannot be killed.
func (s *server) giveUp(j *job, pids []int) {
	done := j.done()
	done.Pids = pids
	if err := s.link.send(done); err != nil {
		s.ended <- nil // the worker is gone
		return
	}
	s.ended <- fmt.Errorf("giving up: %w: %s", ErrUnkillable, listPids(pids))
}

// prepare makes the process what commands are to inherit from, and returns the thread of most.
func (s *server) prepare(setup *message) (first *forker, err error) {
	defer setup.closeFiles()
	// A thread that waits in vfork for an exec cannot be stopped for the collector, and keeps its
	// processor (P) meanwhile: hence no collections by themselves, and one more for the rest to go
	// on. With others that are idle the runtime looks for work on them, and wakes threads for it.
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(2)

	if err := unix.CloseRange(controlFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("close_range: %w (Linux 5.11 is needed)", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become child subreaper: %w", err)
	}
	unix.Umask(0o022)
	if err := catchSignals(); err != nil {
		return nil, err
	}
	if err := s.chooseOOMScore(); err != nil {
		return nil, err
	}
	if setup.Sandbox != nil {
		if err := s.enterSandbox(setup); err != nil {
			return nil, sandbox.Unavailable(err)
		}
	}
	if s.slot != nil {
		if err := s.slot.Settle(); err != nil {
			return nil, err
		}
	}
	first, err = s.forkerOf(&sandbox.Policy{})
	if err == nil && first.sandbox != nil {
		s.shared = first.sandbox.NotApart()
	}
	return first, err
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
	do      chan<- func()   // nil: that of the caller, the first
}

// call calls f on the thread.
func (k *forker) call(f func()) {
	if k.do == nil {
		f()
		return
	}
	done := make(chan struct{})
	k.do <- func() {
		defer close(done)
		f()
	}
	<-done
}

// forkerOf returns the thread for commands of this policy.
func (s *server) forkerOf(p *sandbox.Policy) (*forker, error) {
	key := p.Thread()
	if f := s.forkers[key]; f != nil {
		return f, nil
	}
	do := make(chan func())
	go forkThread(do)
	f := &forker{do: do}
	var err error
	if f.call(func() { err = s.equip(f, p) }); err != nil {
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
	launcherSlack = 4 * time.Millisecond
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
