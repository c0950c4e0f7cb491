package preemption

import (
	"fmt"
	"maps"
	"slices"
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
	// Waiting is the number of waiting tasks by queue and instance.
	Waiting map[*Queue]map[string]int
}

// Check compares a cohort's counters between events with the content; "" if they are equal.
func (c *Cohort) Check(there Counted) string {
	if c.stirred {
		return fmt.Sprintf("cohort %s is stirred between events", c.Name)
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
	lines := 0
	for _, ls := range c.lines {
		lines += len(ls)
	}
	for q, waiting := range there.Waiting {
		lines -= len(q.lines)
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
			return fmt.Sprintf("line %q waits for a run that is not marked", m.claim.instance)
		}
	}
	for instance, l := range q.lines {
		if !slices.Contains(q.cohort.lines[instance], l) {
			return fmt.Sprintf("line %q is not known to its cohort", instance)
		}
		if l.tasks.Len() != waiting[instance] || l.marked != marked[l] {
			return fmt.Sprintf("line %q: %d tasks, %d marked, want %d and %d",
				instance, l.tasks.Len(), l.marked, waiting[instance], marked[l])
		}
		if l.tasks.Len()+l.marked == 0 || l.Short() == l.below.IsZero() {
			return fmt.Sprintf("line %q: %d tasks, short %t, below since %s", instance,
				l.tasks.Len(), l.Short(), l.below)
		}
		delete(waiting, instance)
		delete(marked, l)
	}
	if len(waiting) > 0 {
		return fmt.Sprintf("%v wait in no line", maps.Collect(maps.All(waiting)))
	}
	return ""
}
