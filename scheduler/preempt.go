package scheduler

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/quota"
)

// lookAgain is how long to wait when nothing may be stopped that should.
const lookAgain = time.Second

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
		if l.tasks.len() == 0 && l.marked+l.coming == 0 {
			delete(l.queue.lines, l.instance)
		}
		return
	}
	if l.below.IsZero() {
		l.below = s.now
	}
	if l.timer.slot > 0 || l.marked+l.coming >= l.tasks.len() {
		return
	}
	first, _ := l.tasks.front()
	at := l.ripe(s, first)
	if at.Before(s.now) {
		at = s.now
	}
	s.timers.set(&l.timer, at)
}

// due marks as many tasks as the line needs, for those of it that have waited for
// long enough.
func (l *line) due(s *State) {
	if !l.short() {
		return
	}
	c := l.queue.pool.cohort
	need := l.marked + int(c.ledger.Missing(l.instance, c.Cost(l.queue.class)))
	var ripe []time.Time // since when
	var next time.Time
	for e := l.tasks.l.Front(); e != nil && len(ripe) < need; e = e.Next() {
		at := l.ripe(s, e.Value.(*task))
		if at.After(s.now) {
			next = at
			break
		}
		ripe = append(ripe, at)
	}
	for l.marked+l.coming < len(ripe) {
		r := c.ledger.Victim(l.queue)
		if r == nil {
			if again := s.now.Add(lookAgain); next.IsZero() || again.Before(next) {
				next = again
			}
			break
		}
		c.ledger.MarkFor(r, l.instance)
		sh := r.Owner.(*task).share
		sh.claim, sh.deadline = l, ripe[l.marked+l.coming].Add(s.cfg.PreemptionGrace)
		l.marked++
	}
	if !next.IsZero() {
		s.timers.set(&l.timer, next)
	}
}

// spare takes back that a task is to give way; another one may have to.
func (s *State) spare(t *task) {
	sh := t.share
	if !sh.run.Marked() {
		return
	}
	sh.cohort.ledger.Unmark(&sh.run)
	l := sh.claim
	sh.claim, sh.deadline = nil, time.Time{}
	if l != nil {
		l.marked--
		s.arm(l)
	}
}

// givesWay reports whether a worker has to stop its task now. What need not is spared.
func (s *State) givesWay(w *worker) bool {
	sh := w.share()
	if sh == nil || !sh.run.Marked() {
		return false
	}
	l := sh.claim
	if !sh.cohort.ledger.Deserved(&sh.run) || l != nil && l.marked+l.coming > l.tasks.len() {
		s.spare(w.task)
		return false
	}
	return !s.now.Before(sh.deadline)
}

// preempt has a worker stop its task, which waits again, before others of its priority
// in its branch. It costs the task none of its attempts.
func (s *State) preempt(w *worker) {
	t := w.task
	c, l := t.share.cohort, t.share.claim
	c.preemptions++
	if w.to = l; l != nil {
		l.coming++
	}
	w.yields, w.stopping = true, t.action
	s.release(t)
	t.preempted++
	t.resends, t.returned = 0, true
	for _, o := range t.operations {
		s.changed(o)
	}
	s.answer(w, Reply{Do: BeIdle, NextSync: s.now})
	s.enqueue(t)
}

// yielded notes that a worker that was told to stop has done so, or is gone.
func (s *State) yielded(w *worker) {
	w.yields = false
	if l := w.to; l != nil {
		w.to = nil
		l.coming--
		s.arm(l)
	}
}

// nextCall is when a worker with a task has to call again: soon enough to hear that it
// has to give way, and when it has to.
func (s *State) nextCall(w *worker) time.Time {
	at := s.now.Add(s.cfg.SyncInterval)
	if w.pool.cohort == nil {
		return at
	}
	if heard := s.now.Add(s.cfg.PreemptionGrace); heard.Before(at) {
		at = heard
	}
	if sh := w.share(); sh != nil && sh.deadline.After(s.now) && sh.deadline.Before(at) {
		at = sh.deadline
	}
	return at
}
