package core

import (
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// allHeld is why nothing of a queue may start although something waits.
const allHeld = "each instance name that waits here is at its maximum"

// WaitsFor says for what an operation waits, and behind whom; empty if it does not wait. It looks
// at every worker of the queue.
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
		return fmt.Sprintf("nobody waits for it: it keeps its place until its client is back, for %s at most",
			s.cfg.ClientGrace)
	}
	if instance := levels.Bounded(t.spec.Instance); q.quotas.Grade(instance) == fair.Wait {
		return q.pool.cohort.WhyHeld(instance, q.class)
	}
	why := s.whyWaits(q) + s.overflows.otherClasses(q, t)
	if first := q.head(s.Now); first != nil && first != t {
		why += fmt.Sprintf("; next of the %d that wait is %s", q.waiting, first.spec.Describe())
	}
	return why
}

// whyWaits says for what the first action of a queue waits.
func (s *View) whyWaits(q *queue) string {
	if s.dispatch.isSettling() {
		return fmt.Sprintf("the scheduler has just started; for another %s workers may come back with what they run",
			s.Timers.When(&s.dispatch.settle).Sub(s.Now).Round(time.Second))
	}
	serving, free, drained, suspended := q.staff()
	if q.away && q.drained > 0 {
		return fmt.Sprintf("all %d workers are drained; its actions wait %s for one to be undrained",
			drained, q.patience(&s.cfg))
	}
	if q.away {
		return fmt.Sprintf("size class %d is declared and has no worker; "+
			"its actions wait %s for one to come, and then take another class",
			q.class, q.pool.patience)
	}
	why := fmt.Sprintf("all %d workers that take work are busy", serving)
	if free > 0 {
		why = fmt.Sprintf("%d of %d workers that take work are between two calls, the others busy", free, serving)
	}
	if serving == 0 {
		why = "no worker takes more work for the moment"
	}
	if drained > 0 {
		why += fmt.Sprintf("; %d more are drained", drained)
	}
	if suspended > 0 {
		why += fmt.Sprintf("; %d more are suspended, because their actions failed", suspended)
	}
	return why
}

// otherClasses says, of a task that waits, which workers of other size classes are idle, and why it does
// not go there. It is empty if there are none.
func (o *overflows) otherClasses(q *queue, t *task) string {
	smaller, larger := 0, 0
	for _, other := range q.pool.queues {
		idle := other.idlers()
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
			why = "it " + t.why
		} else if t.spec.Size.Reason != "" {
			why = t.spec.Size.Reason
		}
		text = fmt.Sprintf("; %d workers of smaller classes are idle, but it needs class %d: %s", smaller, q.class, why)
	}
	if to, next, _ := q.largerFor(o.Now); next != nil {
		what, turns := q.spills(), q.turns(to, 0, o.cfg)
		text += fmt.Sprintf("; %d workers of larger classes are idle: one of class %d is worth it "+
			"once the next action has waited for %s, "+
			"or more than %.3g wait for each worker", larger, to.class, what.Patience(turns).Round(time.Second), turns)
	} else if larger > 0 {
		text += fmt.Sprintf("; %d workers of larger classes are idle, "+
			"of which what waits may have none by its maximum", larger)
	}
	if s, _ := o.elsewhere(q); s.task != nil {
		text += fmt.Sprintf("; %d workers with %s are idle: one is worth it "+
			"once the next action has waited for %s, or more than %.3g wait for each worker",
			s.to.idlers(), s.to.pool.Platform, q.spills().Patience(s.turns).Round(time.Second), s.turns)
	}
	return text
}

// staff counts the programs of a queue that take work, those of them that have room for more now, and those that are drained or suspended.
func (q *queue) staff() (serving, free, drained, suspended int) {
	for _, p := range q.programs {
		var has [Suspended + 1]bool
		room := false
		for _, w := range p.positions {
			has[w.takes] = true
			room = room || w.takes == Serving && w.busy() == (request.Key{})
		}
		switch {
		case has[Serving]:
			serving++
			if room {
				free++
			}
		case has[Suspended]:
			suspended++
		case has[Drained]:
			drained++
		}
	}
	return serving, free, drained, suspended
}

// idlers counts the programs of a queue that wait for an action.
func (q *queue) idlers() (n int) {
	if q.pool.tree.Idle(q.class) == 0 {
		return 0
	}
	for _, p := range q.programs {
		for _, w := range p.positions {
			if w.entry.Waits() {
				n++
				break
			}
		}
	}
	return n
}
