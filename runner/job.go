package runner

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/eintr"
)

// A job is one command as the launcher sees it. The forking thread takes it from its output files
// to the last of its processes; a killer helps it to an end that the command does not come to by
// itself.
type job struct {
	s   *server
	id  uint64
	req *runRequest

	pid    int           // of the command; 0 unless it is started. It belongs to the forking thread
	orders chan order    // for the killer
	over   chan struct{} // closed when no process is left

	mu     sync.Mutex
	killed chan struct{} // closed when the killer has ended; nil: there is none. Guarded by mu, as all below
	// stopped: the worker stopped it, or has ended.
	stopped bool
	ended   bool // the command itself has
	out     outcome
	fault   error
}

func newJob(s *server, m *message) *job {
	return &job{
		s: s, id: m.ID, req: m.Run, orders: make(chan order), over: make(chan struct{}),
		out: outcome{Started: time.Now()},
	}
}

// run does the command on the calling thread, which is f's, and returns what the worker gets to
// know, and what to close after that.
func (j *job) run(f *forker, m *message) (done message, outs *outputs) {
	defer m.closeFiles() // an open mount would outlive the command
	outs, err := openOutputs(m, j.s.copier)
	if err != nil {
		j.end()
		return message{Kind: kindDone, ID: j.id, Fault: err.Error()}, nil
	}
	j.pid, err = j.s.start(f.sandbox, m, outs.childFiles())
	j.started(err)
	if f.sandbox != nil {
		f.sandbox.Prepare()
	}
	if j.pid != 0 {
		j.wait()
	}
	j.end()
	if err := outs.finish(); err != nil {
		j.fail(err)
	}
	done = j.done()
	done.Done.OutCut, done.Done.ErrCut = outs.stdout.truncated(), outs.stderr.truncated()
	return done, outs
}

// done is what the worker gets to know so far.
func (j *job) done() message {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.out
	if !j.ended {
		out.EndedBeingKilled = j.stopped // it would have, if it could
	}
	if out.Ended.IsZero() {
		out.Ended = time.Now()
	}
	done := message{Kind: kindDone, ID: j.id, Done: &out}
	if j.fault != nil {
		done.Fault = j.fault.Error()
	}
	return done
}

// started takes the result of the start.
func (j *job) started(err error) {
	if err != nil {
		j.notStarted(err)
	}
	switch {
	case j.pid == 0:
	case err != nil:
		j.order(kill) // the forking thread is stranded in the slot's group
	case j.isStopped():
		j.order(look)
	}
}

func (j *job) notStarted(err error) {
	var not *notStartedError
	if !errors.As(err, &not) || errors.Is(err, cgroup.ErrStranded) {
		j.fail(fmt.Errorf("start command: %w", err))
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.out.NotStarted, j.out.ExitCode, j.out.Missing = not.text, not.exitCode, not.missing
}

// end waits for the end of the killer: what it does later would be done to the next command.
func (j *job) end() {
	close(j.over)
	j.mu.Lock()
	killed := j.killed
	j.mu.Unlock()
	if killed != nil {
		<-killed
	}
}

func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fault = errors.Join(j.fault, err)
}

func (j *job) isStopped() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stopped
}

// stop has the killer do o because the worker wants it or has ended.
func (j *job) stop(o order) {
	j.mu.Lock()
	j.stopped = true
	j.mu.Unlock()
	j.order(o)
}

// order gives the killer an order, and makes it if there is none.
func (j *job) order(o order) {
	j.mu.Lock()
	if j.killed == nil {
		select {
		case <-j.over: // no process is left
			j.mu.Unlock()
			return
		default:
		}
		j.killed = make(chan struct{})
		k := &killer{j: j, gap: firstStrikeGap}
		go func() {
			defer close(j.killed)
			k.run()
		}()
	}
	j.mu.Unlock()
	select {
	case j.orders <- o:
	case <-j.over:
	}
}

// wait reaps until the command has ended, has the killer end what it left, and returns when no
// process is left: in a subreaper that means when there is no child.
func (j *job) wait() {
	for !j.hasEnded() {
		if _, err := j.reap(0); err != nil {
			j.fail(fmt.Errorf("the command's end was not seen: %w", err))
			return
		}
	}
	// Usually the command was alone.
	if !j.reapAll(unix.WNOHANG) {
		j.order(kill)
		j.reapAll(0)
	}
}

// reap waits for any child; with WNOHANG it does not wait, and returns 0 if none is dead. It records
// the end of the command.
func (j *job) reap(options int) (pid int, err error) {
	var status syscall.WaitStatus
	var usage syscall.Rusage
	pid, err = eintr.Ignore(func() (int, error) {
		return syscall.Wait4(-1, &status, options|unix.WALL, &usage) // also one cloned with an odd exit signal
	})
	if err == nil && pid == j.pid && !j.hasEnded() { // else the number is another's by now
		j.record(status, &usage)
	}
	return pid, err
}

// reapAll reaps all children, with WNOHANG those that are dead, and reports whether there are no
// others.
func (j *job) reapAll(options int) (none bool) {
	for {
		pid, err := j.reap(options)
		if err != nil { // ECHILD
			return true
		}
		if pid == 0 {
			return false
		}
	}
}

func (j *job) record(status syscall.WaitStatus, usage *syscall.Rusage) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
	j.out.Status, j.out.Usage, j.out.Ended = status, *usage, time.Now()
	j.out.EndedBeingKilled = j.stopped
}

func (j *job) hasEnded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended
}
