package runner

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
)

const (
	stuckAfter      = 5 * time.Second  // after the first SIGKILL: report to the worker
	unkillableAfter = 15 * time.Second // after the first SIGKILL: give up
	firstStrikeGap  = 2 * time.Millisecond
	longestGap      = 250 * time.Millisecond
)

// job is one command as the launcher sees it. All of it belongs to the main goroutine.
type job struct {
	s   *server
	m   *message
	req *runRequest // of m
	out outcome

	pid   int // of the command; 0 until it is started
	ended bool

	fault   error
	stopped bool // the worker stopped it, or has ended
	force   force
	struck  time.Time // of the first SIGKILL
	gap     time.Duration

	grace  <-chan time.Time
	strike <-chan time.Time // when to signal again
}

// force is how far a job has gone to end its processes. It only grows.
type force uint8

const (
	untouched force = iota
	asked           // those that were there have got SIGTERM
	killing         // all get SIGKILL, again and again
	reported        // and the worker knows that some do not die of it
)

// death is the reaper's information about the command itself.
type death struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
	at     time.Time
	alone  bool // no other process is left
}

// started is the result of the forking thread.
type started struct {
	pid int
	err error
}

// run does one command from its output files to the last of its processes.
func (s *server) run(m *message) message {
	defer m.closeFiles() // an open mount would outlive the command
	j := &job{s: s, m: m, req: m.Run, gap: firstStrikeGap}
	outs, err := openOutputs(m)
	if err != nil {
		return message{Kind: kindDone, ID: m.ID, Fault: err.Error()}
	}
	j.out.Started = time.Now()
	stuck := j.supervise(outs.childFiles())
	if !j.ended {
		j.out.EndedBeingKilled = j.stopped // it would have, if it could
	}
	if j.out.Ended.IsZero() {
		j.out.Ended = time.Now()
	}
	if err := outs.finish(); err != nil {
		j.fault = errors.Join(j.fault, err)
	}
	j.out.OutCut, j.out.ErrCut = outs.stdout.truncated(), outs.stderr.truncated()
	done := message{Kind: kindDone, ID: m.ID, Done: &j.out, Pids: stuck}
	if j.fault != nil {
		done.Fault = j.fault.Error()
	}
	return done
}

// supervise starts the command and returns when nothing is left of it, or with the
// processes that cannot be killed.
func (j *job) supervise(files []uintptr) (stuck []int) {
	startc := make(chan started, 1)
	f, err := j.s.forker(&j.req.Policy)
	if err != nil {
		j.fault = fmt.Errorf("start command: %w", err)
		return nil
	}
	f.do <- func() {
		pid, err := j.s.start(f.sandbox, j.m, files)
		startc <- started{pid, err}
	}
	var diedc <-chan death
	var emptyc <-chan struct{}
	requests := j.s.requests
	for {
		select {
		case st := <-startc:
			if st.err != nil {
				j.notStarted(st.err)
			}
			if st.pid == 0 {
				return nil
			}
			j.pid = st.pid
			diedc, emptyc = reap(st.pid)
			switch {
			case st.err != nil:
				j.kill() // the forking thread is stranded in the slot's group
			case j.stopped && j.force < killing:
				j.ask()
			}
		case d := <-diedc:
			j.record(d)
			if d.alone {
				return nil
			}
			j.kill()
		case <-emptyc:
			// Both may have been ready, and select does not know an order.
			select {
			case d := <-diedc:
				j.record(d)
			default:
			}
			if !j.ended {
				j.fault = errors.New("the command's end was not seen")
			}
			return nil
		case m, ok := <-requests:
			if !ok {
				requests = nil
				j.stopped = true
				j.kill()
			} else if m.Kind == kindStop && m.ID == j.m.ID {
				j.terminate()
			}
		case <-j.grace:
			j.kill()
		case <-j.strike:
			if j.force < killing {
				j.ask()
				continue
			}
			j.kill()
			if stuck := j.reportStuck(); stuck != nil {
				return stuck
			}
		}
	}
}

func (j *job) notStarted(err error) {
	var not *notStartedError
	if errors.As(err, &not) && !errors.Is(err, cgroup.ErrStranded) {
		j.out.NotStarted, j.out.ExitCode, j.out.Missing = not.text, not.exitCode, not.missing
		return
	}
	j.fault = fmt.Errorf("start command: %w", err)
}

func (j *job) record(d death) {
	j.ended = true
	j.out.Status, j.out.Usage, j.out.Ended = d.status, d.usage, d.at
	j.out.EndedBeingKilled = j.stopped
}

// terminate asks everything to end, for the time of the grace.
func (j *job) terminate() {
	if j.stopped {
		return
	}
	j.stopped = true
	if j.ended {
		return // the others are being killed
	}
	j.ask()
	j.grace = time.After(j.req.Grace)
}

// ask sends SIGTERM to all processes of the command, once: what a handler starts is to do its work,
// and what a second SIGTERM means to a program nobody knows. As long as there is none, which the
// forking thread is about to make, it schedules the next look. A process that still waits in exec
// has no handler and dies of it. Whether it waits is not known: the command may run before its start
// is reported.
func (j *job) ask() {
	if j.force != untouched {
		return
	}
	for _, p := range j.members() {
		j.force = asked
		// A stopped process would notice the one without the other only when killed.
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT)
	}
	if j.force == untouched {
		j.again()
	}
}

// again schedules the next signals, after a gap that grows.
func (j *job) again() {
	j.strike = time.After(j.gap)
	j.gap = min(2*j.gap, longestGap)
}

// kill kills everything once and schedules the next kill, since a process may have been forked or
// reparented meanwhile.
func (j *job) kill() {
	if j.force < killing {
		j.force, j.struck, j.gap = killing, time.Now(), firstStrikeGap
	}
	j.grace = nil
	j.strikeAll()
	j.again()
}

// strikeAll sends SIGKILL to all processes of the command.
func (j *job) strikeAll() {
	if j.s.box != nil {
		// As the first process of its namespace this one reaches all others in one step that no
		// fork escapes, and none can leave. ESRCH: there is none.
		_ = unix.Kill(-1, unix.SIGKILL)
		return
	}
	if j.s.slot != nil {
		// The tree is struck all the same, and ends when there is no child; an
		// error here is worth nothing to the action.
		_ = j.s.slot.Strike()
	}
	strikeTree(j.members())
}

// members lists the processes of the command: those below this process and those in the slot's
// cgroup.
func (j *job) members() []process {
	all, err := readProcesses()
	if err != nil {
		return nil // kill comes again
	}
	var group []int
	if j.s.slot != nil {
		group, _ = j.s.slot.Pids() // the same
	}
	return membersOf(all, unix.Getpid(), group)
}

// reportStuck reports to the worker once, and returns the processes when it is time to give up.
func (j *job) reportStuck() []int {
	since := time.Since(j.struck)
	if since < stuckAfter || (j.force == reported && since < unkillableAfter) {
		return nil
	}
	var pids []int
	for _, p := range j.members() {
		if p.state != 'Z' {
			pids = append(pids, p.pid)
		}
	}
	if len(pids) == 0 {
		return nil // they have ended; the reaper is about to report it
	}
	if since >= unkillableAfter {
		return pids
	}
	j.force = reported
	// If this fails the worker is gone, which the requests show.
	_ = j.s.link.send(message{Kind: kindStuck, ID: j.m.ID, Pids: pids})
	return nil
}

// reap waits for every child until there is none, which in a subreaper means that
// there is no descendant either; then it closes empty and ends. Before that died gets
// the end of the command itself.
func reap(command int) (died <-chan death, empty <-chan struct{}) {
	d, e := make(chan death, 1), make(chan struct{})
	go func() {
		defer close(e)
		for {
			var status syscall.WaitStatus
			var usage syscall.Rusage
			pid, err := wait4(&status, 0, &usage)
			if err != nil {
				return // ECHILD; there is no other
			}
			if pid != command {
				continue
			}
			ended := death{status: status, usage: usage, at: time.Now()}
			// One more check usually shows that it was alone.
			ended.alone = reapDead()
			d <- ended
			if ended.alone {
				return
			}
		}
	}()
	return d, e
}

// reapDead reaps the children that are dead already and reports whether these were all.
func reapDead() (none bool) {
	for {
		pid, err := wait4(nil, unix.WNOHANG, nil)
		if err != nil {
			return true
		}
		if pid == 0 {
			return false
		}
	}
}

// wait4 waits for any child, also one cloned with an odd exit signal.
func wait4(status *syscall.WaitStatus, options int, usage *syscall.Rusage) (int, error) {
	for {
		pid, err := syscall.Wait4(-1, status, options|unix.WALL, usage)
		if err != unix.EINTR {
			return pid, err
		}
	}
}
