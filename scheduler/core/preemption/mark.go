package preemption

import (
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

const (
	// lookAgain is how long to wait when nothing may be stopped that should.
	lookAgain = time.Second
	// The last part of the grace, 1/secondChoice, is for another task, should the chosen one
	// turn out to be none that may be stopped.
	secondChoice = 10
	// Calls of all workers of a queue are not closer than 1/callsInGrace of the grace, and at
	// most maxCalls are planned.
	callsInGrace, maxCalls = 4, 8
)

// A Mark means that a running task must yield: to a line, or to none if its own instance is above
// its maximum.
type Mark struct {
	share    *Share
	claim    *Line
	deadline time.Time
	// last runs, for a line, until any other task may yield instead; then element is in
	// queue.overdue.
	last    timer.Timer
	element fifo.Anchor
}

// StandBy lets the next suitable worker that calls replace an expired mark.
func (m *Mark) StandBy() { m.element = m.claim.queue.overdue.PushBack(m) }

// ripe is when other tasks must yield for a task of the line.
func (c *Cohort) ripe(l *Line, sh *Share) time.Time {
	return latest(sh.since, l.tier.below).Add(c.options.Delay)
}

// arm handles a change of a line. Its timer is set if it is short; else the line rests.
func (c *Cohort) arm(l *Line) {
	switch {
	case l.tasks.Len() == 0 && l.marked == 0:
		c.forget(l)
	case l.timer.IsSet():
	case l.marked >= l.tasks.Len():
		l.rouse()
	case !l.Short():
		l.rest()
	default:
		l.rouse()
		first, _ := l.tasks.Front()
		c.Timers.Set(&l.timer, latest(c.ripe(l, first), c.Now))
	}
}

// Ripen is called when the timer of a line is due. It marks as many tasks as the line needs for its
// tasks that have waited long enough, but only a limited number at once; then the timer is due
// again. It returns the number of marked tasks.
func (l *Line) Ripen(atMost int) (marked int) {
	c := l.queue.cohort
	if !l.Short() {
		c.arm(l)
		c.armNext(l.tier)
		return 0
	}
	need := l.marked + int(c.ledger.Missing(l.Instance(), l.tier.cost))
	var next time.Time
	i := 0 // the number of tasks of the line for which another one yields
	for sh := range l.tasks.Values() {
		if i >= need {
			break
		}
		ripe := c.ripe(l, sh)
		if ripe.After(c.Now) {
			next = ripe
			break
		}
		if i == l.marked && marked == atMost {
			next = c.Now
			break
		}
		if i == l.marked {
			r := c.ledger.Victim(l.queue)
			if r == nil {
				next = c.Now.Add(lookAgain)
				break
			}
			last := c.callBy(l.queue, ripe.Add(c.options.Grace))
			m := c.markFor(r, l, last.Add(-c.options.Grace/secondChoice))
			marked++
			m.last.Owner = m
			c.Timers.Set(&m.last, last)
		}
		i++
	}
	switch {
	case !next.IsZero():
		c.Timers.Set(&l.timer, next)
	case l.marked < l.tasks.Len():
		l.rest()
	}
	c.armNext(l.tier)
	return marked
}

// callBy makes all busy workers of a queue call at a time, or a little earlier if calls are already
// due then, and returns that time. It is for marks: at that time all workers have called.
func (c *Cohort) callBy(q *Queue, at time.Time) time.Time {
	q.calls = slices.DeleteFunc(q.calls, func(x time.Time) bool { return !x.After(c.Now) })
	for _, call := range q.calls {
		if early := at.Sub(call); early >= 0 && early < c.options.Grace/callsInGrace {
			return call
		}
	}
	if at.After(c.Now) && len(q.calls) < maxCalls {
		i, _ := slices.BinarySearchFunc(q.calls, at, time.Time.Compare)
		q.calls = slices.Insert(q.calls, i, at)
	}
	return at
}

// markFor makes a run yield to a line.
func (c *Cohort) markFor(r *quota.Run, l *Line, deadline time.Time) *Mark {
	sh := r.Owner.(*Share)
	c.ledger.MarkFor(r, l.Instance())
	sh.mark = &Mark{share: sh, claim: l, deadline: deadline}
	l.marked++
	return sh.mark
}

// unmark takes a mark back. The caller calls unclaim for its line.
func (c *Cohort) unmark(m *Mark) {
	c.ledger.Unmark(&m.share.run)
	m.share.mark = nil
	c.Timers.Stop(&m.last)
	if l := m.claim; l != nil {
		l.marked--
		if m.element != nil {
			l.queue.overdue.Remove(m.element)
		}
	}
}

// withdrawMark removes the mark of a task; another one may have to yield.
func (c *Cohort) withdrawMark(sh *Share) {
	m := sh.mark
	if m == nil {
		return
	}
	c.unmark(m)
	if m.claim != nil {
		c.unclaim(m.claim)
	}
}

// unclaim handles that one task less must yield to a line: another one may have to, also to another
// line of the instance.
func (c *Cohort) unclaim(l *Line) {
	c.arm(l)
	c.settle(l.Instance(), false)
}

// IsPreempted reports whether the calling worker of a counted task must stop it now. A task that
// need not yield any more is unmarked. A task that does not count need not stop.
func (sh *Share) IsPreempted() bool {
	if !sh.Counts() {
		return false
	}
	c, m := sh.cohort, sh.mark
	if m == nil {
		return c.replaces(sh)
	}
	if l := m.claim; !c.ledger.Deserved(&sh.run) || l != nil && l.marked > l.tasks.Len() {
		c.withdrawMark(sh)
		return false
	}
	return !c.Now.Before(m.deadline)
}

// replaces makes a task yield at once in place of another one, whose time is over.
func (c *Cohort) replaces(sh *Share) bool {
	ledger, q := c.ledger, sh.run.Kind.(*Queue)
	for m, ok := q.overdue.Front(); ok; m, ok = q.overdue.Front() {
		l := m.claim
		c.unmark(m)
		switch {
		case !l.Short() || l.marked >= l.tasks.Len() || ledger.Missing(l.Instance(), sh.run.Cost) == 0:
			c.unclaim(l) // none need yield
		case ledger.Open(&sh.run):
			c.markFor(&sh.run, l, c.Now)
			return true
		default:
			again := c.markFor(&m.share.run, l, m.deadline)
			again.StandBy()
			return false
		}
	}
	return false
}
