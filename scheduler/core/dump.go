package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// Dump returns the whole state as text, for people and for comparisons. Times are relative to the
// last event. It is long: a line for each worker, operation and task.
func (s *View) Dump() string {
	d := &dumper{now: s.Now, timers: &s.Timers}
	d.line("counts %+v", s.Counts())
	if s.dispatch.isSettling() {
		d.line("settling%s", d.timer(s.dispatch.settle))
	}
	for r := range s.drains.All() {
		d.line("drain %s by %q: %q, since %s", r.Pattern, r.Author, r.Reason, d.ago(r.Since))
	}
	for _, w := range s.workers.Sorted() {
		d.worker(w)
	}
	for _, name := range slices.Sorted(maps.Keys(s.operations.byName)) {
		d.operation(s.operations.byName[name])
	}
	d.flights(s.inFlight.shared, s.inFlight.private)
	for _, t := range s.dispatch.unmatched.All() {
		d.line("unmatched %s", t.action)
	}
	for _, p := range s.dispatch.pools.Sorted() {
		for _, q := range p.queues {
			d.queue(q)
		}
	}
	for _, c := range s.dispatch.pools.cohorts {
		d.cohort(s, c)
	}
	for r := range s.orphans.All() {
		d.line("orphan result %s by %s%s", r.Action, r.Worker, d.until(s.orphans.Until(r)))
	}
	for _, c := range slices.Sorted(maps.Keys(s.operations.clients)) {
		d.line("client %q %d", c, s.operations.clients[c])
	}
	return d.text.String()
}

// queue writes the content of each branch of a queue, and the next item.
func (d *dumper) queue(q *queue) {
	d.line("queue in %q %s class %d: %d workers, %d serve, %d rest, %d wait, load %v, declared %t%s",
		q.pool.Prefix, q.pool.Platform, q.class, q.workers, q.serving, q.resting,
		q.waiting, q.load, q.declared, d.timer(q.rest))
	for v := range q.pool.tree.Branches(q.class) {
		d.line("  %*s%q %+v", 2*v.Depth, "", v.Key, v)
	}
	if t := q.head(d.now); t != nil {
		d.line("  next is %s", t.action)
	}
	d.line("  spills %t%s", q.overflow.open, d.timer(q.overflow.timer))
	for _, l := range q.quotas.Lines() {
		d.line("  line %q: %d wait, below %s, %d marked%s", l.Instance, l.Waiting, d.ago(l.Below),
			l.Marked, d.until(l.Due))
	}
}

// cohort writes the quotas and the use of instances.
func (d *dumper) cohort(s *View, c *cohort) {
	d.line("cohort %s: %d units, %d preemptions", c.Name, c.capacity(), c.Preemptions())
	for _, u := range c.Uses() {
		d.line("  %q %+v", u.Instance, u.Use)
	}
}

type dumper struct {
	now    time.Time
	timers *timer.Heap
	text   strings.Builder
}

func (d *dumper) line(format string, args ...any) {
	fmt.Fprintf(&d.text, format, args...)
	d.text.WriteByte('\n')
}

// ago writes a time; the zero time is "-".
func (d *dumper) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Sub(d.now).String()
}

func (d *dumper) timer(t timer.Timer) string {
	if !t.IsSet() {
		return ""
	}
	return d.until(d.timers.When(&t))
}

// until writes when something is due; nothing for the zero time.
func (d *dumper) until(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " until " + d.ago(at)
}

func (d *dumper) worker(w *worker) {
	d.line("worker %s %v in %q %s class %d over %d: serving %t, prefers idle %t, drained %t, held %d, idle %t%s",
		w.Key, w.ID, w.pool.Prefix, w.pool.Platform, w.queue.class, w.Connection(),
		w.takes == Serving, w.takes.prefersIdle(), w.takes.isDrained(), w.call, w.entry.Waits(), d.timer(w.timer))
	if w.boot != "" {
		d.line("  boot %s", w.boot)
	}
	if r := &w.program.record; r.Standing() != trust.Trusted || r.Failures() > 0 {
		d.line("  standing %d since or until %s, %d in a row failed, %d lately", r.Standing(),
			d.ago(r.Until()), r.Row(), r.Failures())
	}
	if w.task != nil {
		d.line("  runs %s, confirmed %t", w.task.action, w.duty != assigned)
	}
	if sh := w.share(); sh != nil {
		if deadline, last, must := sh.GivesWay(); must {
			d.line("  gives way at %s%s", d.ago(deadline), d.until(last))
		}
	}
	if reported := w.ended.get().action; w.stops().Key != (request.Key{}) || reported.Key != (request.Key{}) {
		d.line("  stops %q, reported %q", w.stops(), reported)
	}
}

func (d *dumper) operation(o *operation) {
	st := o.status()
	d.line("operation %s %s rev %d %s of %s in %q, %d wait, queued %s, started %s, ended %s, "+
		"worker %q, attempts %d, code %d exit %d%s",
		st.Name, st.Stage, st.Rev, st.Digest, o.spec.Platform, o.spec.Instance, o.waiters,
		d.ago(st.Queued), d.ago(st.Started),
		d.ago(st.Ended), st.Worker, st.Attempts, st.Response.GetStatus().GetCode(), st.Response.GetResult().GetExitCode(),
		d.timer(o.timer))
}

func (d *dumper) flights(fs ...flights) {
	var tasks []*task
	for _, f := range fs {
		for a := range f {
			tasks = slices.AppendSeq(tasks, f.of(a))
		}
	}
	slices.SortFunc(tasks, func(t, u *task) int {
		return cmp.Or(request.CompareKeys(t.action, u.action), int(int32(t.number-u.number)))
	})
	for _, t := range tasks {
		d.task(t)
	}
}

func (d *dumper) task(t *task) {
	where, resends := "unmatched", int32(0)
	switch {
	case t.worker() != nil:
		where, resends = "with "+t.worker().Key, t.run().resends
		if r := t.race(); r != nil {
			where += " and " + r.worker.Key
		}
	case t.queue() != nil:
		q := t.queue()
		where = fmt.Sprintf("queued in %q %s class %d", q.pool.Prefix, q.pool.Platform, q.class)
	}
	var names []string
	for o := range t.operations.all() {
		names = append(names, o.spec.Name)
	}
	d.line("task %s %s for %v, returned %t, outgrown %t, impatient %t, hedged %t, late %t, "+
		"queued %s, attempts %d, preempted %d, small %d, resends %d%s",
		t.action, where, names, t.returned, t.course.largest(), t.impatient,
		t.course == hedged || t.course == racing, t.course.late(), d.ago(t.queued), t.attempts,
		t.preempted, t.small, resends, d.timer(t.timer))
}
