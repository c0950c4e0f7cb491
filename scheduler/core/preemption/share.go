package preemption

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// A Share is the quotas' state of a task.
type Share struct {
	// Owner is the caller's.
	Owner any
	// instance is its key: in the ledger, and on the first level of the tree.
	instance string
	// line and element are its place in the queue, since is since when.
	line    *Line
	element fifo.Anchor
	since   time.Time
	// run counts in cohort, which is nil while the task does not run.
	run    quota.Run
	cohort *Cohort
	// mark is set while the task must yield.
	mark *Mark
}

// NewShare returns the Share of a task of an instance.
func NewShare(owner any, instance string) *Share {
	sh := &Share{Owner: owner, instance: instance}
	sh.run.Owner = sh
	return sh
}

// A Run describes a running task to a cohort.
type Run struct {
	Started  time.Time
	Priority int32
	// Preempted is how often the task has been stopped before.
	Preempted int
	// Shielded: it must not be stopped.
	Shielded bool
}

// Charge counts a task that a worker of the queue runs.
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
	c.withdrawMark(sh)
	sh.cohort = nil
	changed := c.ledger.End(&sh.run)
	c.settle(sh.instance, changed)
	if changed {
		c.stir(sh.instance)
	}
}

// Key is the quota in which a counting task counts, Cost its cost.
func (sh *Share) Key() quota.Key { return quota.Key{Cohort: sh.cohort.Name, Instance: sh.instance} }

// Cost is the cost of a counting task.
func (sh *Share) Cost() int64 { return sh.run.Cost }

// HoldsBack reports whether another task of the same instance waits in the queue, could not start
// because of the maximum, and could if this one did not run. A nil Share holds nothing back.
func (sh *Share) HoldsBack() bool {
	if !sh.Counts() {
		return false
	}
	q, ledger := sh.run.Kind.(*Queue), sh.cohort.ledger
	return q.Waits(sh.instance) && ledger.Headroom(sh.instance, sh.Cost()) == 0 && ledger.HeadroomWithout(&sh.run) > 0
}

// Urge records the priority of another operation of a task.
func (sh *Share) Urge(priority int32) {
	if sh.Counts() && priority < sh.run.Priority {
		sh.run.Priority = priority
		sh.cohort.ledger.Fix(&sh.run)
	}
}

// Shield updates whether a counting task must not be stopped, and whether its command runs.
func (sh *Share) Shield(shielded, busy bool) {
	if shielded != sh.run.Shielded || busy != sh.run.Busy {
		sh.run.Shielded, sh.run.Busy = shielded, busy
		sh.cohort.ledger.Fix(&sh.run)
	}
}

// Claim returns the instance to which a task must yield; nil if it need not.
func (sh *Share) Claim() *Line {
	if sh.Counts() && sh.mark != nil {
		return sh.mark.claim
	}
	return nil
}

// GivesWay returns when a counted task must yield, and when another one yields instead if it cannot
// be stopped; false: it need not yield. The second time is zero for a task that yields to no
// instance.
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

// Preempt records that a task that must yield does so, and returns to which instance.
func (sh *Share) Preempt() *Line {
	sh.cohort.preemptions++
	return sh.mark.claim
}
