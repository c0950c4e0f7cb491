package preemption

import (
	"fmt"
	"maps"

	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// CheckRuns returns an inconsistency of a running, counted task of an instance in the queue; "" if
// there is none.
func (q *Queue) CheckRuns(sh *Share, instance string) string {
	if sh.cohort != q.cohort || sh.run.Kind != any(q) || sh.line != nil || sh.instance != instance {
		return "it counts elsewhere"
	}
	if m := sh.mark; sh.run.Marked() != (m != nil) ||
		m != nil && (m.share != sh || (m.claim != nil) != (m.element != nil || m.last.IsSet())) {
		return fmt.Sprintf("marked %t, as %+v", sh.run.Marked(), m)
	}
	return ""
}

// CheckWaits returns an inconsistency of a task that waits in the queue.
func (q *Queue) CheckWaits(sh *Share) string {
	if sh.line == nil || sh.line != q.lines[sh.instance] || sh.since.IsZero() || sh.cohort != nil {
		return "it waits in no line"
	}
	return ""
}

// Counted is the content of a cohort's queues, as the caller counts it.
type Counted struct {
	// Used is the use of each instance, Marked the number of tasks that must yield to each line.
	Used   map[string]int64
	Marked map[*Line]int
	// Waiting is the number of waiting tasks by queue and instance; Takers says whether a queue
	// has some.
	Waiting map[*Queue]map[string]int
	Takers  map[*Queue]bool
}

// Check compares a cohort's counters between events with the content; "" if they are equal.
func (c *Cohort) Check(there Counted) string {
	if c.eased {
		return fmt.Sprintf("cohort %s is eased between events", c.Name)
	}
	for _, u := range c.Uses() {
		if u.Used != there.Used[u.Instance] || u.Quota != c.quotas[u.Instance] {
			return fmt.Sprintf("%+v, want %d", u, there.Used[u.Instance])
		}
		delete(there.Used, u.Instance)
	}
	if len(there.Used) > 0 {
		return fmt.Sprintf("%v is used and not counted", there.Used)
	}
	lines, armed := 0, map[*tier]bool{}
	for q := range there.Waiting {
		for _, l := range q.lines {
			armed[l.tier] = armed[l.tier] || l.timer.IsSet()
		}
	}
	for _, p := range c.parties {
		for _, t := range p.tiers {
			lines += t.lines
			if short := c.ledger.Standing(p.instance, t.cost) == quota.BelowMin; short == t.below.IsZero() {
				return fmt.Sprintf("instance %q is below its minimum: %t, since %s", p.instance, short, t.below)
			}
			if t.resting.Len() > 0 && !armed[t] && c.ledger.Missing(p.instance, t.cost) > 0 {
				return fmt.Sprintf("instance %q lacks runs, and all its lines rest", p.instance)
			}
		}
	}
	for q, waiting := range there.Waiting {
		lines -= len(q.lines)
		if there.Takers[q] && q.hidden.Len() > 0 {
			return "a queue with takers hides lines"
		}
		if problem := q.check(waiting, there.Marked); problem != "" {
			return problem
		}
	}
	if lines != 0 {
		return fmt.Sprintf("cohort %s knows %d lines too many", c.Name, lines)
	}
	if len(there.Marked) > 0 {
		return "somebody gives way for a line that is gone"
	}
	return ""
}

// check compares a queue with the number of waiting tasks by instance, and removes its lines from
// marked.
func (q *Queue) check(waiting map[string]int, marked map[*Line]int) string {
	for m := range q.overdue.Values() {
		if m.share.mark != m || m.claim.queue != q {
			return fmt.Sprintf("line %q waits for a run that is not marked", m.claim.Instance())
		}
	}
	exposed := 0
	for instance, l := range q.lines {
		if l.tier.party != q.cohort.parties[instance] {
			return fmt.Sprintf("line %q is not known to its cohort", instance)
		}
		if l.exposed {
			exposed++
		}
		if l.tasks.Len() != waiting[instance] || l.marked != marked[l] {
			return fmt.Sprintf("line %q: %d tasks, %d marked, want %d and %d",
				instance, l.tasks.Len(), l.marked, waiting[instance], marked[l])
		}
		rests := l.rests != nil
		set, open := l.timer.IsSet(), l.tasks.Len() > l.marked
		if l.tasks.Len()+l.marked == 0 || rests && set || !set && rests != open {
			return fmt.Sprintf("line %q: %d tasks, %d marked, rests %t, timer %t", instance,
				l.tasks.Len(), l.marked, rests, set)
		}
		delete(waiting, instance)
		delete(marked, l)
	}
	if q.hidden.Len()+exposed != len(q.lines) {
		return fmt.Sprintf("%d of %d lines are hidden, %d exposed", q.hidden.Len(), len(q.lines), exposed)
	}
	if len(waiting) > 0 {
		return fmt.Sprintf("%v wait in no line", maps.Collect(maps.All(waiting)))
	}
	return ""
}
