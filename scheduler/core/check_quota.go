package core

import (
	"fmt"
	"maps"
)

// checkQuotas compares what quotas count with what there is.
func (s *State) checkQuotas() string {
	used := map[QuotaKey]int64{}
	marked := map[*line]int{}
	for _, w := range s.workers.byKey {
		t, c := w.task, w.pool.cohort
		if t == nil {
			continue
		}
		sh := w.share()
		if (sh != nil) != (c != nil && t.spec != nil) {
			return fmt.Sprintf("task %s counts: %t", t.action, sh != nil)
		}
		if sh == nil {
			continue
		}
		if sh.cohort != c || sh.run.Lane != any(w.queue) || sh.line != nil || sh.instance != bounded(t.spec.Instance) {
			return fmt.Sprintf("task %s counts elsewhere", t.action)
		}
		if m := sh.mark; sh.run.Marked() != (m != nil) || m != nil && (m.share != sh || (m.claim != nil) != (m.place != nil || m.last.slot > 0)) {
			return fmt.Sprintf("task %s: marked %t, as %+v", t.action, sh.run.Marked(), m)
		}
		if l := w.claim(); l != nil {
			marked[l]++
		}
		used[QuotaKey{c.Name, sh.instance}] += c.Cost(w.queue.class)
	}
	for _, c := range s.dispatch.cohorts {
		if c.stirred {
			return fmt.Sprintf("cohort %s is stirred between events", c.Name)
		}
		for _, u := range s.quotaUses(c) {
			if u.Used != used[u.QuotaKey] || u.Quota != c.quotas[u.Instance] {
				return fmt.Sprintf("%+v, want %d", u, used[u.QuotaKey])
			}
			delete(used, u.QuotaKey)
		}
	}
	if len(used) > 0 {
		return fmt.Sprintf("%v is used and not counted", used)
	}
	return s.checkLines(marked)
}

func (s *State) checkLines(marked map[*line]int) string {
	for _, p := range s.dispatch.pools {
		for _, q := range p.queues {
			for _, m := range q.overdue.all() {
				if m.share.mark != m || m.claim.queue != q {
					return fmt.Sprintf("line %q waits for what is not marked", m.claim.instance)
				}
			}
			waiting := map[string]int{}
			for _, t := range q.tasks() {
				if p.cohort == nil {
					continue
				}
				waiting[t.share.instance]++
				if t.share.line != q.lines[t.share.instance] || t.share.since.IsZero() || t.share.cohort != nil {
					return fmt.Sprintf("task %s waits in no line", t.action)
				}
			}
			for instance, l := range q.lines {
				if l.tasks.len() != waiting[instance] || l.marked != marked[l] {
					return fmt.Sprintf("line %q: %d tasks, %d marked, want %d and %d",
						instance, l.tasks.len(), l.marked, waiting[instance], marked[l])
				}
				if l.tasks.len()+l.marked == 0 || l.short() == l.below.IsZero() {
					return fmt.Sprintf("line %q: %d tasks, short %t, below since %s", instance, l.tasks.len(), l.short(), l.below)
				}
				delete(waiting, instance)
				delete(marked, l)
			}
			if len(waiting) > 0 && p.cohort != nil {
				return fmt.Sprintf("%v wait in no line", maps.Collect(maps.All(waiting)))
			}
		}
	}
	if len(marked) > 0 {
		return "somebody gives way for a line that is gone"
	}
	return ""
}
