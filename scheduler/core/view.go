package core

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// A View is a State that is only looked at, as of its last event. What it returns are values.
type View State

// View returns s to look at.
func (s *State) View() *View { return (*View)(s) }

// Operation returns the state of an operation as of the last event.
func (s *View) Operation(name string) (event.Status, bool) {
	o, ok := s.operations.byName[name]
	if !ok {
		return event.Status{}, false
	}
	return o.status(), true
}

// Counts returns the sizes as of the last event. It looks at every worker.
func (s *View) Counts() Counts {
	c := Counts{
		Queued:    s.dispatch.queued - s.dispatch.unmatched.count,
		Unmatched: s.dispatch.unmatched.count,
		Executing: s.dispatch.executing,
	}
	for _, w := range s.workers.byKey {
		switch {
		case w.busy() != action{}:
			c.Busy++
		case w.takes == Suspended:
			c.Suspended++
		case w.takes != Serving:
			c.Draining++
		default:
			c.Idle++
		}
	}
	return c
}

// Tally returns what has happened up to the last event.
func (s *View) Tally() Tally {
	t := s.tally
	t.Hedges, t.Won, t.Spilled = s.hedges.begun, s.hedges.won, s.overflows.spilled
	t.Moved = s.overflows.moved
	return t
}

// Drains returns those in force, the oldest first.
func (s *View) Drains() []event.DrainRecord { return slices.Clone(s.workers.drains) }

// WorkerAttributes returns the names of what the workers are identified by, in order.
func (s *View) WorkerAttributes() []string {
	names := map[string]struct{}{}
	for _, w := range s.workers.byKey {
		for name := range w.id {
			names[name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// WaitFor returns how many actions wait for workers that p matches to be undrained.
func (s *View) WaitFor(p *pattern.Pattern) (n int) {
	counted := map[*queue]bool{}
	for _, w := range s.workers.byKey {
		if q := w.queue; w.takes == Drained && !q.staffed() && !counted[q] && p.Match(w.attribute) {
			counted[q] = true
			n += q.waiting
		}
	}
	return n
}

// An Entry is what patterns see of an operation that is not done. It is a value.
type Entry struct {
	Operation *request.Operation // which nobody changes
	Worker    string             // that runs it; empty: it is queued
}

// Entries yields the operations that are not done, in any order. Events may happen between two of them:
// what comes or ends meanwhile may be left out.
func (s *View) Entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, o := range s.operations.byName {
			if o.task == nil {
				continue // it is done
			}
			e := Entry{Operation: o.spec}
			if w := o.task.worker(); w != nil {
				e.Worker = w.key
			}
			if !yield(e) {
				return
			}
		}
	}
}

// OperationAttributes are the names of what patterns see of operations, besides platform.NAME for each property.
func OperationAttributes() []string {
	return []string{
		"action", "client", "correlated", "instance", "invocation",
		"mnemonic", "operation", "stage", "target", "user", "worker",
	}
}

// Attribute is what patterns see of it; false: it has none of that name.
func (e Entry) Attribute(name string) (string, bool) {
	switch name {
	case "stage":
		if e.Worker == "" {
			return "queued", true
		}
		return "executing", true
	case "worker":
		return e.Worker, e.Worker != ""
	}
	return e.Operation.Attribute(name)
}

// Held returns at most so many operations whose actions workers have, and have had since before a time. It looks at
// every worker.
func (s *View) Held(since time.Time, atMost int) (held []event.Held) {
	for _, w := range s.workers.byKey {
		t := w.task
		if t == nil || t.worker() != w || t.spec == nil || t.started.After(since) {
			continue
		}
		for o := range t.operations.all() {
			if len(held) == atMost {
				return held
			}
			held = append(held, event.Held{
				Operation: o.spec, Queued: o.queued, Started: t.started, Attempts: int(t.attempts),
				Worker: w.key, ID: w.id, Prefix: w.pool.Prefix, WorkerPlatform: w.pool.Platform, SizeClass: w.queue.class,
			})
		}
	}
	return held
}

// A SizeClass is one on which an action could run, with how long it would wait there.
type SizeClass struct {
	Size uint32
	Wait time.Duration
}

// SizeClasses returns the size classes on which an action could run, in ascending order, as of
// the last event. They are those of the workers that would get it,
// and those that are declared. Workers without a class are of class 1 beside those that have one.
func (s *View) SizeClasses(spec *request.Operation) (classes []SizeClass) {
	q := s.dispatch.pools.match(spec, 0, true)
	if q == nil {
		return nil
	}
	for _, other := range q.pool.queues {
		if (other.expected() || other == q) && other.admits(spec.Instance) {
			classes = append(classes, SizeClass{Size: other.class, Wait: other.wait()})
		}
	}
	if len(classes) > 1 {
		classes[0].Size = max(classes[0].Size, 1)
	}
	return classes
}

// AllSizeClasses is SizeClasses for actions of an instance name, on whatever platform; of equal ones the
// shortest wait.
func (s *View) AllSizeClasses(instanceName string) (classes []SizeClass) {
	for p := range s.dispatch.pools.All() {
		if instance.Below(instanceName, p.Prefix) {
			classes = append(classes,
				s.SizeClasses(&request.Operation{Instance: instanceName, Platform: p.Platform})...)
		}
	}
	slices.SortFunc(classes, func(a, b SizeClass) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Wait, b.Wait))
	})
	return slices.CompactFunc(classes, func(a, b SizeClass) bool { return a.Size == b.Size })
}

// A CohortView is what State knows of one cohort. It is a value.
type CohortView struct {
	quota.Cohort
	// Capacity is what its workers that take work can run at once, Used what they run of
	// known instances, Minimums the sum of what is guaranteed; all in its unit.
	Capacity, Used, Minimums int64
	// Preemptions counts the runs that were stopped.
	Preemptions uint64
	// Uses are the instances with a quota, or with something that runs or waits, in their order.
	Uses []preemption.Use
}

// Quota returns the one in force for a key; the zero Quota if there is none.
func (s *View) Quota(k quota.Key) quota.Quota {
	for _, c := range s.dispatch.pools.cohorts {
		if c.Name == k.Cohort {
			q, _ := c.Quota(k.Instance)
			return q
		}
	}
	return quota.Quota{}
}

// QuotaRecords returns all quotas in force, in the order of their keys.
func (s *View) QuotaRecords() (records []quota.Record) {
	for _, c := range s.dispatch.pools.cohorts {
		records = append(records, c.Quotas()...)
	}
	slices.SortFunc(records, func(a, b quota.Record) int {
		return cmp.Or(cmp.Compare(a.Cohort, b.Cohort), cmp.Compare(a.Instance, b.Instance))
	})
	return records
}

// Cohorts returns what is known of all cohorts, in the order of the configuration.
func (s *View) Cohorts() []CohortView {
	views := make([]CohortView, 0, len(s.dispatch.pools.cohorts))
	for _, c := range s.dispatch.pools.cohorts {
		v := CohortView{
			Cohort: c.Cohort.Cohort, Capacity: c.capacity(), Minimums: c.Minimums(),
			Preemptions: c.Preemptions(), Uses: c.Uses(),
		}
		for _, u := range v.Uses {
			v.Used += u.Used
		}
		views = append(views, v)
	}
	return views
}

// A QuotaRun is a run that counts.
type QuotaRun struct {
	// Operation was the first that asked for the action.
	Operation *request.Operation
	Worker    string
	Started   time.Time
	Cost      int64
}

// QuotaRuns returns what the uses consist of that Cohorts tells as of the same event, in the order of
// the workers' keys.
func (s *View) QuotaRuns() map[quota.Key][]QuotaRun {
	runs := map[quota.Key][]QuotaRun{}
	for _, w := range s.workers.sorted() {
		sh := w.share()
		if sh == nil {
			continue
		}
		runs[sh.Key()] = append(runs[sh.Key()], QuotaRun{w.task.spec, w.key, w.task.started, sh.Cost()})
	}
	return runs
}

// Suspects returns what the workers of each program that is suspended or on trial have in common,
// of at most so many, in their order.
func (s *View) Suspects(atMost int) (ids []map[string]string) {
	for _, p := range s.dispatch.pools.Sorted() {
		for _, q := range p.queues {
			if q.ill == 0 {
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(q.programs)) {
				if p := q.programs[key]; p.record.Standing() != trust.Trusted && len(ids) < atMost {
					ids = append(ids, p.identity())
				}
			}
		}
	}
	return ids
}

// A Tally counts what has happened to a State since it was made, for metrics.
type Tally struct {
	// Joined operations were added to an action that was queued or running.
	Joined uint64
	// Outgrown runs failed on a smaller size class, or with less time than their own, and were repeated on the largest.
	Outgrown uint64
	// Hedges are second runs beside one that took too long; Won are those that ended first.
	Hedges, Won uint64
	// Spilled tasks went from the queue of their size class to an idle worker of a larger one.
	Spilled uint64
	// Moved tasks went from their queue to an idle worker of another pool.
	Moved uint64
	// Returned runs were lost with their worker, or dropped by it, and queued again.
	Returned uint64
	// Suspensions of workers began.
	Suspensions uint64
}

// Counts are the sizes of a State, for metrics.
type Counts struct {
	// Queued actions wait for a worker to be free, Unmatched ones for a first
	// worker that can serve them; Executing ones are with a worker.
	Queued, Unmatched, Executing int
	// Idle, Busy, Draining and Suspended sum up to the known workers. Those that are suspended have nothing left to do.
	Idle, Busy, Draining, Suspended int
}
