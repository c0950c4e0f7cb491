package core

import (
	"container/list"
	"slices"
	"time"

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

// A mark says that a task that runs has to give way: to a line, or to nobody if its own
// instance is above its maximum.
type mark struct {
	share    *share
	claim    *line
	deadline time.Time
	// last runs, for a line, until anybody gives way instead who may; then element is in queue.overdue.
	last    timer.Timer
	element *list.Element
}

// standBy has the next worker that calls and can be used do what this one did not.
func (m *mark) standBy() { m.element = m.claim.queue.overdue.pushBack(m) }

// short reports whether a line's instance is below its minimum and waits in it.
func (l *line) short() bool {
	q := l.queue
	c := q.pool.cohort
	return l.tasks.len() > 0 && c.ledger.Standing(l.instance, c.Cost(q.class)) == quota.BelowMin
}

// ripe is when others have to give way for a task of the line.
func (c *cohort) ripe(l *line, t *task) time.Time {
	since := t.share.since
	if l.below.After(since) {
		since = l.below
	}
	return since.Add(c.cfg.PreemptionDelay)
}

// arm follows a change of a line, or of what its instance may use.
func (c *cohort) arm(l *line) {
	if !l.short() {
		l.below = time.Time{}
		c.timers.Stop(&l.timer)
		if l.tasks.len() == 0 && l.marked == 0 {
			c.forget(l)
		}
		return
	}
	if l.below.IsZero() {
		l.below = c.now
	}
	if l.timer.IsSet() || l.marked >= l.tasks.len() {
		return
	}
	first, _ := l.tasks.front()
	at := c.ripe(l, first)
	if at.Before(c.now) {
		at = c.now
	}
	c.timers.Set(&l.timer, at)
}

// mark marks as many tasks as the line needs, for those of it that have waited for
// long enough.
func (c *cohort) mark(l *line) {
	if !l.short() {
		return
	}
	need := l.marked + int(c.ledger.Missing(l.instance, c.Cost(l.queue.class)))
	var next time.Time
	i := 0 // so many of the line have somebody who gives way for them
	for e := l.tasks.l.Front(); e != nil && i < need; e = e.Next() {
		ripe := c.ripe(l, e.Value.(*task))
		if ripe.After(c.now) {
			next = ripe
			break
		}
		if i == l.marked {
			r := c.ledger.Victim(l.queue)
			if r == nil {
				next = c.now.Add(lookAgain)
				break
			}
			last := c.callBy(l.queue, ripe.Add(c.cfg.PreemptionGrace))
			m := c.markFor(r, l, last.Add(-c.cfg.PreemptionGrace/secondChoice))
			m.last.Owner = m
			c.timers.Set(&m.last, last)
		}
		i++
	}
	if !next.IsZero() {
		c.timers.Set(&l.timer, next)
	}
}

// callBy has all busy workers of a queue call at a time, or a little earlier if they do so anyway,
// and returns which. It is for marks: at its time they have all been asked.
func (c *cohort) callBy(q *queue, at time.Time) time.Time {
	q.calls = slices.DeleteFunc(q.calls, func(x time.Time) bool { return !x.After(c.now) })
	for _, call := range q.calls {
		if early := at.Sub(call); early >= 0 && early < c.cfg.PreemptionGrace/callsInGrace {
			return call
		}
	}
	if at.After(c.now) && len(q.calls) < maxCalls {
		i, _ := slices.BinarySearchFunc(q.calls, at, time.Time.Compare)
		q.calls = slices.Insert(q.calls, i, at)
	}
	return at
}

// markFor has a run give way to a line.
func (c *cohort) markFor(r *quota.Run, l *line, deadline time.Time) *mark {
	sh := r.Owner.(*task).share
	c.ledger.MarkFor(r, l.instance)
	sh.mark = &mark{share: sh, claim: l, deadline: deadline}
	l.marked++
	return sh.mark
}

// unmark takes a mark back. The caller arms its line.
func (c *cohort) unmark(m *mark) {
	c.ledger.Unmark(&m.share.run)
	m.share.mark = nil
	c.timers.Stop(&m.last)
	if l := m.claim; l != nil {
		l.marked--
		if m.element != nil {
			l.queue.overdue.remove(m.element)
		}
	}
}

// spare takes back that a task is to give way; another one may have to.
func (c *cohort) spare(t *task) {
	m := t.share.mark
	if m == nil {
		return
	}
	c.unmark(m)
	if m.claim != nil {
		c.arm(m.claim)
	}
}

// isPreempted reports whether a worker has to stop its task now. What need not is spared.
func (c *cohort) isPreempted(w *worker) bool {
	sh := w.share()
	if sh == nil {
		return false
	}
	m := sh.mark
	if m == nil {
		return c.replaces(w)
	}
	if l := m.claim; !c.ledger.Deserved(&sh.run) || l != nil && l.marked > l.tasks.len() {
		c.spare(w.task)
		return false
	}
	return !c.now.Before(m.deadline)
}

// replaces has a worker's task give way at once in the place of another one, whose time is over.
func (c *cohort) replaces(w *worker) bool {
	sh := w.share()
	ledger := c.ledger
	for m, ok := w.queue.overdue.front(); ok; m, ok = w.queue.overdue.front() {
		l := m.claim
		c.unmark(m)
		switch {
		case !l.short() || l.marked >= l.tasks.len() || ledger.Missing(l.instance, sh.run.Cost) == 0:
			c.arm(l) // nobody need
		case ledger.Open(&sh.run):
			c.markFor(&sh.run, l, c.now)
			return true
		default:
			again := c.markFor(&m.share.run, l, m.deadline)
			again.standBy()
			return false
		}
	}
	return false
}
