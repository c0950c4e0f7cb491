package core

import (
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// allHeld is why nothing of a queue may start although something waits.
const allHeld = "each instance name that waits here is at its maximum"

// WaitsFor returns the reason why an operation waits, and the operations ahead of it; empty if it
// does not wait. It looks at every worker of the queue.
func (s *View) WaitsFor(name string) string {
	o, ok := s.operations.byName[name]
	if !ok || o.task == nil || o.task.worker() != nil {
		return ""
	}
	t := o.task
	q := t.queue()
	if q == nil {
		return s.dispatch.pools.explain(t.spec)
	}
	if !t.wanted() {
		return fmt.Sprintf("no client waits for it: it keeps its place until its client reconnects, for %s at most",
			s.cfg.ClientGrace)
	}
	if instance := levels.Bounded(t.spec.Instance); q.quotas.Grade(instance) == fair.Wait {
		return q.pool.cohort.WhyHeld(instance, q.class)
	}
	why := s.whyWaits(q, t)
	if first := q.head(s.Now); first != nil && first != t {
		why += fmt.Sprintf("; next of the %d that wait is %s", q.waiting, first.spec.Describe())
	}
	return why
}

// whyWaits says why a task of a queue waits, as if it were the first.
func (s *View) whyWaits(q *queue, t *task) string {
	why := s.whyNobody(q, t)
	if t.avoids() {
		why += fmt.Sprintf("; %s, so it waits for other workers for another %s", t.past.failure,
			max(t.past.until-s.Awake(), 0).Round(time.Second))
	}
	return why + s.overflows.otherClasses(q, t)
}

// whyNobody says why no worker of a queue gets a task.
func (s *View) whyNobody(q *queue, t *task) string {
	if s.dispatch.isSettling() {
		return fmt.Sprintf("the scheduler has just started; for another %s workers may return with their running actions",
			s.Timers.When(&s.dispatch.settle).Sub(s.Now).Round(time.Second))
	}
	serving, free, drained, suspended := q.staff(t)
	if q.away && q.drained > 0 {
		return fmt.Sprintf("%s drained; actions wait %s for one to be undrained",
			plural.Choose(drained, "the only worker is", fmt.Sprintf("all %d workers are", drained)), q.patience(&s.cfg))
	}
	if q.away {
		return fmt.Sprintf("size class %d is declared and has no worker; "+
			"its actions wait %s for one to come, and then take another class",
			q.class, q.pool.patience)
	}
	other := ""
	if t.avoids() {
		other = "other "
	}
	why := whyBusy(serving, free, other)
	if drained > 0 {
		why += fmt.Sprintf("; %d more %s drained", drained, plural.Choose(drained, "is", "are"))
	}
	if suspended > 0 {
		why += fmt.Sprintf("; %d more %s suspended, because their actions failed", suspended, plural.Choose(suspended, "is", "are"))
	}
	return why
}

// whyBusy says why none of the workers that take work gets an action now, although some have room
// for it. other is empty, or "other " if these are not all.
func whyBusy(serving, free int, other string) string {
	switch {
	case serving == 0:
		return fmt.Sprintf("no %sworker takes more work for the moment", other)
	case serving == 1 && free == 1:
		return fmt.Sprintf("the only %sworker that takes work is between two calls", other)
	case free > 0:
		return fmt.Sprintf("%d of %d %sworkers that take work %s between two calls, the others busy",
			free, serving, other, plural.Choose(free, "is", "are"))
	case serving == 1:
		return fmt.Sprintf("the only %sworker that takes work is busy", other)
	}
	return fmt.Sprintf("all %d %sworkers that take work are busy", serving, other)
}

// otherClasses says, for a queued task, which workers of other size classes are idle, and why it
// does not go there. It is empty if there are none.
func (o *overflows) otherClasses(q *queue, t *task) string {
	smaller, larger := 0, 0
	for _, other := range q.pool.queues {
		idle := other.idlers(t)
		if other.class < q.class {
			smaller += idle
		} else if other != q {
			larger += idle
		}
	}
	text := ""
	if smaller > 0 {
		why := "actions start on the largest class unless their runs speak for another"
		if t.course.largest() {
			why = "it " + t.because()
		} else if t.spec.Size.Reason != "" {
			why = t.spec.Size.Reason
		}
		text = fmt.Sprintf("; %s of smaller classes %s, but it needs class %d: %s", plural.Of(smaller, "worker"), areIdle(smaller), q.class, why)
	}
	if to, next, _ := q.largerFor(); next != nil {
		what, turns := q.spills(), q.turns(to, 0, o.cfg)
		text += fmt.Sprintf("; %s of larger classes %s: one of class %d is worth it "+
			"once the next action has waited for %s, "+
			"or more than %.3g wait for each worker", plural.Of(larger, "worker"), areIdle(larger), to.class, what.Patience(turns).Round(time.Second), turns)
	} else if larger > 0 {
		text += fmt.Sprintf("; %s of larger classes %s, "+
			"of which what waits may have none by its maximum", plural.Of(larger, "worker"), areIdle(larger))
	}
	if s, _, _ := o.elsewhere(q); s.task != nil {
		idle := s.to.idlers(s.task)
		text += fmt.Sprintf("; %s with %s %s: one is worth it "+
			"once the next action has waited for %s, or more than %.3g wait for each worker",
			plural.Of(idle, "worker"), s.to.pool.Platform, areIdle(idle), q.spills().Patience(s.turns).Round(time.Second), s.turns)
	}
	return text
}

func areIdle(n int) string { return plural.Choose(n, "is idle", "are idle") }

// staff counts the programs of a queue that take work, those of them that have room now, and those
// that are drained or suspended, without the one that a task avoids.
func (q *queue) staff(t *task) (serving, free, drained, suspended int) {
	for _, p := range q.programs {
		if t.avoidsProgram(p) {
			continue
		}
		var has [Suspended + 1]bool
		takesNow := false
		for _, w := range p.positions {
			has[w.takes] = true
			takesNow = takesNow || w.takes == Serving && w.busy() == (request.Key{})
		}
		switch {
		case has[Serving]:
			serving++
			if takesNow {
				free++
			}
		case has[Suspended]:
			suspended++
		case has[Drained] || has[DrainedResting]:
			drained++
		}
	}
	return serving, free, drained, suspended
}

// idlers counts the programs of a queue that wait for an action, without the one that a task avoids.
func (q *queue) idlers(t *task) (n int) {
	if q.pool.tree.Idle(q.class) == 0 {
		return 0
	}
	for _, p := range q.programs {
		for _, w := range p.positions {
			if w.entry.Waits() && !t.avoidsProgram(p) {
				n++
				break
			}
		}
	}
	return n
}
