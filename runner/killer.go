package runner

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	stuckAfter      = 5 * time.Second  // after the first SIGKILL: report to the worker
	unkillableAfter = 15 * time.Second // after the first SIGKILL: give up
	firstStrikeGap  = 2 * time.Millisecond
	longestGap      = 250 * time.Millisecond
)

// An order is for a killer.
type order uint8

const (
	terminate order = iota // ask all processes to end, and kill them after the grace
	look                   // ask those that were made meanwhile
	kill                   // all of them, now
)

// A killer ends the processes of a job.
type killer struct {
	j      *job
	force  force
	struck time.Time     // of the first SIGKILL
	gap    time.Duration // until the next signal

	grace  <-chan time.Time
	strike <-chan time.Time // when to signal again
}

// force is how far a killer has gone. It only grows.
type force uint8

const (
	untouched force = iota
	asked           // those that were there have got SIGTERM
	killing         // all get SIGKILL, again and again
	reported        // and the worker knows that some do not die of it
)

// run returns when no process of the job is left, or when it has given up.
func (k *killer) run() {
	for {
		select {
		case o := <-k.j.orders:
			k.obey(o)
		case <-k.grace:
			k.kill()
		case <-k.strike:
			if k.force < killing {
				k.ask()
				continue
			}
			k.kill()
			if stuck := k.reportStuck(); stuck != nil {
				k.j.s.giveUp(k.j, stuck)
				return
			}
		case <-k.j.over:
			return
		}
	}
}

func (k *killer) obey(o order) {
	switch {
	case o == kill:
		k.kill()
	case k.force >= killing:
	case o == look:
		k.ask()
	case o == terminate && k.grace == nil && !k.j.hasEnded(): // else the others are being killed
		k.ask()
		k.grace = time.After(k.j.req.Grace)
	}
}

// ask sends SIGTERM to all processes of the command, once: what a handler starts is to do its work,
// and what a second SIGTERM means to a program nobody knows. As long as there is none, which the
// forking thread is about to make, it schedules the next look. A process that still waits in exec
// has no handler and dies of it. Whether it waits is not known: the command may run before its start
// is reported.
func (k *killer) ask() {
	if k.force != untouched {
		return
	}
	for _, p := range k.j.s.members() {
		k.force = asked
		// A stopped process would notice the one without the other only when killed.
		p.signal(unix.SIGTERM)
		p.signal(unix.SIGCONT)
	}
	if k.force == untouched {
		k.again()
	}
}

// again schedules the next signals, after a gap that grows.
func (k *killer) again() {
	k.strike = time.After(k.gap)
	k.gap = min(2*k.gap, longestGap)
}

// kill kills everything once and schedules the next kill, since a process may have been forked or
// reparented meanwhile.
func (k *killer) kill() {
	if k.force < killing {
		k.force, k.struck, k.gap = killing, time.Now(), firstStrikeGap
	}
	k.grace = nil
	k.j.s.strikeAll()
	k.again()
}

// reportStuck reports to the worker once, and returns the processes when it is time to give up.
func (k *killer) reportStuck() []int {
	since := time.Since(k.struck)
	if since < stuckAfter || (k.force == reported && since < unkillableAfter) {
		return nil
	}
	var pids []int
	for _, p := range k.j.s.members() {
		if p.state != 'Z' {
			pids = append(pids, p.pid)
		}
	}
	if len(pids) == 0 {
		return nil // they have ended; the forking thread is about to see it
	}
	if since >= unkillableAfter {
		return pids
	}
	k.force = reported
	// If this fails the worker is gone, which the socket for stops shows.
	_ = k.j.s.link.send(message{Kind: kindStuck, ID: k.j.id, Pids: pids})
	return nil
}

// strikeAll sends SIGKILL to all processes of the command.
func (s *server) strikeAll() {
	if s.box != nil {
		// As the first process of its namespace this one reaches all others in one step that no
		// fork escapes, and none can leave. ESRCH: there is none.
		_ = unix.Kill(-1, unix.SIGKILL)
		return
	}
	if s.slot != nil {
		// The tree is struck all the same, and ends when there is no child; an
		// error here is worth nothing to the action.
		_ = s.slot.Strike()
	}
	strikeTree(s.members())
}

// members lists the processes of the command: those below this process and those in the slot's
// cgroup.
func (s *server) members() []process {
	all, err := readProcesses()
	if err != nil {
		return nil // the killer looks again
	}
	var group []int
	if s.slot != nil {
		group, _ = s.slot.Pids() // the same
	}
	return membersOf(all, unix.Getpid(), group)
}
