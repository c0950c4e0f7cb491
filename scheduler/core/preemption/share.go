package preemption

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// A Share is what quotas know of a task.
type Share struct {
	// Owner is the caller's.
	Owner any
	// instance is its key: in the ledger, and on the first level of the tree.
	instance string
	// line and element are where it waits, since is since when.
	line    *Line
	element fifo.Anchor
	since   time.Time
	// run counts in cohort, which is nil while the task does not run.
	run    quota.Run
	cohort *Cohort
	// mark is there while the task has to give way.
	mark *Mark
}

// NewShare returns that of a task of an instance.
func NewShare(owner any, instance string) *Share {
	sh := &Share{Owner: owner, instance: instance}
	sh.run.Owner = sh
	return sh
}

// A Run is what a cohort has to know of one.
type Run struct {
	Started  time.Time
	Priority int32
	// Preempted is how often the task has been stopped before.
	Preempted int
	// Shielded: it is not to be stopped.
	Shielded bool
}

// Charge counts a task that a worker of the queue has.
func (q *Queue) Charge(sh *Share, run Run) {
	c, r := q.cohort, &sh.run
	r.Instance, r.Kind, r.Cost, r.Started = sh.instance, q, c.Cost(q.class), run.Started
	r.Preempted, r.Shielded, r.Busy, r.Priority = run.Preempted, run.Shielded, false, run.Priority
	sh.cohort, sh.since = c, time.Time{}
	c.settle(sh.instance, c.ledger.Start(r))
}

// Counts reports whether a task is charged. A nil Share is not.
func (sh *Share) Counts() bool { return sh != nil && sh.cohort != nil }

// Discharge undoes Queue.Charge, if the task counts.
func (sh *Share) Discharge() {
	if !sh.Counts() {
		return
	}
	c := sh.cohort
	c.spare(sh)
	sh.cohort = nil
	changed := c.ledger.End(&sh.run)
	c.stirred = c.stirred || changed
	c.settle(sh.instance, changed)
}

// Key says whose quota of which cohort a task that counts counts in, Cost what it counts.
func (sh *Share) Key() quota.Key { return quota.Key{Cohort: sh.cohort.Name, Instance: sh.instance} }

// Cost is what a task that counts counts.
func (sh *Share) Cost() int64 { return sh.run.Cost }

// Urge notes the priority of another operation of a task.
func (sh *Share) Urge(priority int32) {
	if sh.Counts() && priority < sh.run.Priority {
		sh.run.Priority = priority
		sh.cohort.ledger.Fix(&sh.run)
	}
}

// Shield notes whether a task that counts is not to be stopped, and whether it is busy with what it is for.
func (sh *Share) Shield(shielded, busy bool) {
	if shielded != sh.run.Shielded || busy != sh.run.Busy {
		sh.run.Shielded, sh.run.Busy = shielded, busy
		sh.cohort.ledger.Fix(&sh.run)
	}
}

// Claim returns for whom a task is to give way; nil if it need not.
func (sh *Share) Claim() *Line {
	if sh.Counts() && sh.mark != nil {
		return sh.mark.claim
	}
	return nil
}

// GivesWay is when a task that counts has to give way, and when another one does for it if it
// cannot be stopped; false: it need not. The latter is zero for what gives way to nobody.
func (sh *Share) GivesWay() (deadline, last time.Time, must bool) {
	m := sh.mark
	if m == nil {
		return deadline, last, false
	}
	if m.last.IsSet() {
		last = sh.cohort.Timers.When(&m.last)
	}
	return m.deadline, last, true
}

// Preempt counts that a task which is to give way does, and returns for whom.
func (sh *Share) Preempt() *Line {
	sh.cohort.preemptions++
	return sh.mark.claim
}
