package core

import (
	"container/list"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/quota"
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
	// last runs, for a line, until anybody gives way instead who may; then place is in queue.overdue.
	last  timer
	place *list.Element
}

// standBy has the next worker that calls and can be used do what this one did not.
func (m *mark) standBy() { m.place = m.claim.queue.overdue.pushBack(m) }

// short reports whether a line's instance is below its minimum and waits in it.
func (l *line) short() bool {
	q := l.queue
	c := q.pool.cohort
	return l.tasks.len() > 0 && c.ledger.Standing(l.instance, c.Cost(q.class)) == quota.BelowMin
}

// ripe is when others have to give way for a task of the line.
func (l *line) ripe(s *State, t *task) time.Time {
	since := t.share.since
	if l.below.After(since) {
		since = l.below
	}
	return since.Add(s.cfg.PreemptionDelay)
}

// arm follows a change of a line, or of what its instance may use.
func (s *State) arm(l *line) {
	if !l.short() {
		l.below = time.Time{}
		s.timers.stop(&l.timer)
		if l.tasks.len() == 0 && l.marked == 0 {
			delete(l.queue.lines, l.instance)
		}
		return
	}
	if l.below.IsZero() {
		l.below = s.now
	}
	if l.timer.slot > 0 || l.marked >= l.tasks.len() {
		return
	}
	first, _ := l.tasks.front()
	at := l.ripe(s, first)
	if at.Before(s.now) {
		at = s.now
	}
	s.timers.set(&l.timer, at)
}

// mark marks as many tasks as the line needs, for those of it that have waited for
// long enough.
func (s *State) mark(l *line) {
	if !l.short() {
		return
	}
	c := l.queue.pool.cohort
	need := l.marked + int(c.ledger.Missing(l.instance, c.Cost(l.queue.class)))
	var next time.Time
	i := 0 // so many of the line have somebody who gives way for them
	for e := l.tasks.l.Front(); e != nil && i < need; e = e.Next() {
		ripe := l.ripe(s, e.Value.(*task))
		if ripe.After(s.now) {
			next = ripe
			break
		}
		if i == l.marked {
			r := c.ledger.Victim(l.queue)
			if r == nil {
				next = s.now.Add(lookAgain)
				break
			}
			last := s.callBy(l.queue, ripe.Add(s.cfg.PreemptionGrace))
			m := s.markFor(r, l, last.Add(-s.cfg.PreemptionGrace/secondChoice))
			m.last.owner = m
			s.timers.set(&m.last, last)
		}
		i++
	}
	if !next.IsZero() {
		s.timers.set(&l.timer, next)
	}
}

// callBy has all busy workers of a queue call at a time, or a little earlier if they do so anyway,
// and returns which. It is for marks: at its time they have all been asked.
func (s *State) callBy(q *queue, at time.Time) time.Time {
	q.calls = slices.DeleteFunc(q.calls, func(c time.Time) bool { return !c.After(s.now) })
	for _, c := range q.calls {
		if early := at.Sub(c); early >= 0 && early < s.cfg.PreemptionGrace/callsInGrace {
			return c
		}
	}
	if at.After(s.now) && len(q.calls) < maxCalls {
		i, _ := slices.BinarySearchFunc(q.calls, at, time.Time.Compare)
		q.calls = slices.Insert(q.calls, i, at)
	}
	return at
}

// markFor has a run give way to a line.
func (s *State) markFor(r *quota.Run, l *line, deadline time.Time) *mark {
	sh := r.Owner.(*task).share
	sh.cohort.ledger.MarkFor(r, l.instance)
	sh.mark = &mark{share: sh, claim: l, deadline: deadline}
	l.marked++
	return sh.mark
}

// unmark takes a mark back. The caller arms its line.
func (s *State) unmark(m *mark) {
	m.share.cohort.ledger.Unmark(&m.share.run)
	m.share.mark = nil
	s.timers.stop(&m.last)
	if l := m.claim; l != nil {
		l.marked--
		if m.place != nil {
			l.queue.overdue.remove(m.place)
		}
	}
}

// spare takes back that a task is to give way; another one may have to.
func (s *State) spare(t *task) {
	m := t.share.mark
	if m == nil {
		return
	}
	s.unmark(m)
	if m.claim != nil {
		s.arm(m.claim)
	}
}

// givesWay reports whether a worker has to stop its task now. What need not is spared.
func (s *State) givesWay(w *worker) bool {
	sh := w.share()
	if sh == nil || s.isSettling() {
		return false
	}
	m := sh.mark
	if m == nil {
		return s.standsIn(w)
	}
	if l := m.claim; !sh.cohort.ledger.Deserved(&sh.run) || l != nil && l.marked > l.tasks.len() {
		s.spare(w.task)
		return false
	}
	return !s.now.Before(m.deadline)
}

// standsIn has a worker's task give way at once in the place of another one, whose time is over.
func (s *State) standsIn(w *worker) bool {
	sh := w.share()
	ledger := sh.cohort.ledger
	for m, ok := w.queue.overdue.front(); ok; m, ok = w.queue.overdue.front() {
		l := m.claim
		s.unmark(m)
		switch {
		case !l.short() || l.marked >= l.tasks.len() || ledger.Missing(l.instance, sh.run.Cost) == 0:
			s.arm(l) // nobody need
		case ledger.Open(&sh.run):
			s.markFor(&sh.run, l, s.now)
			return true
		default:
			again := s.markFor(&m.share.run, l, m.deadline)
			again.standBy()
			return false
		}
	}
	return false
}

// preempt has a worker stop its task, which waits again, before others of its priority
// in its branch, and run one of those for whom that is. It costs the task none of its attempts.
func (s *State) preempt(w *worker) {
	t := w.task
	l := t.share.mark.claim
	t.share.cohort.preemptions++
	w.stopping = t.action
	s.release(t)
	t.preempted++
	t.resends, t.returned = 0, true
	s.operations.changedAll(t)
	if !s.nextFor(w, l) {
		w.yields = true
		s.answer(w, Reply{Do: BeIdle, NextSync: s.now})
	}
	s.enqueue(t)
}

// nextFor assigns a worker that was to be free for a line, nil for none, the task that is next there.
func (s *State) nextFor(w *worker, l *line) bool {
	if l == nil || !l.short() || !w.serving || s.isSettling() {
		return false
	}
	it := w.pool.tree.NextOf(&w.seat, l.instance, s.now)
	if it == nil {
		return false
	}
	s.assign(it.Owner.(*task), w)
	return true
}

// claim returns for whom the task of a worker is to give way; nil if it need not.
func (w *worker) claim() *line {
	if sh := w.share(); sh != nil && sh.mark != nil {
		return sh.mark.claim
	}
	return nil
}

// nextCall is when a worker with a task has to call again: soon enough to hear that it
// has to give way, and when it, or another one, has to.
func (s *State) nextCall(w *worker) time.Time {
	at := s.now.Add(s.cfg.SyncInterval)
	if w.pool.cohort == nil {
		return at
	}
	sooner := func(t time.Time) {
		if t.After(s.now) && t.Before(at) {
			at = t
		}
	}
	sooner(s.now.Add(s.cfg.PreemptionGrace))
	for _, c := range w.queue.calls {
		sooner(c)
	}
	if sh := w.share(); sh != nil && sh.mark != nil {
		sooner(sh.mark.deadline)
	}
	return at
}
