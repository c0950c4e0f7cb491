package core

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/listing"
	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// A View is a read-only State, as of its last event. It returns values.
type View State

// View returns a read-only view of s.
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
func (s *View) Counts() view.Counts {
	c := view.Counts{
		Queued:    s.dispatch.queued - s.dispatch.unmatched.Len(),
		Unmatched: s.dispatch.unmatched.Len(),
		Executing: s.dispatch.executing,
	}
	for _, w := range s.workers.All() {
		switch {
		case w.busy() != request.Key{}:
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

// Tally returns the totals up to the last event.
func (s *View) Tally() view.Tally {
	t := s.tally
	t.Hedges, t.Won, t.Spilled = s.hedges.begun, s.hedges.won, s.overflows.spilled
	t.Moved = s.overflows.moved
	return t
}

// IsReviewing reports whether some workers must still be drained or undrained, or have not been
// offered work since State has settled.
func (s *View) IsReviewing() bool { return s.reviews.isBehind() }

// Drains returns the active drains, the oldest first.
func (s *View) Drains() []drain.Record { return slices.Collect(s.drains.All()) }

// WorkerAttributes returns the names of the parts of workers' identities, in order.
func (s *View) WorkerAttributes() []string { return s.workers.Attributes() }

// WaitFor returns how many actions wait for workers that p matches to be undrained.
func (s *View) WaitFor(p *pattern.Pattern) (n int) {
	counted := map[*queue]bool{}
	for _, w := range s.workers.All() {
		if q := w.queue; w.takes.isDrained() && !q.staffed() && !counted[q] && p.Match(w.Attribute) {
			counted[q] = true
			n += q.waiting
		}
	}
	return n
}

// Latest returns the number of the latest operation. Each new one has a larger number.
func (s *View) Latest() uint64 { return s.operations.open.Last() }

// Entries yields the unfinished operations that p may match (nil: all) and whose numbers are above
// a given one, in the order of their numbers. If p names an operation or an invocation, it yields
// no others.
func (s *View) Entries(p *pattern.Pattern, after uint64) iter.Seq2[uint64, view.Entry] {
	tag, invocation := listing.Tag(0), ""
	if p != nil {
		if name, ok := p.Exactly("operation"); ok {
			return s.entryOf(name, after)
		}
		var named bool
		if invocation, named = p.Exactly("invocation"); named {
			tag = listing.TagOf(invocation)
		}
	}
	return func(yield func(uint64, view.Entry) bool) {
		for number, o := range s.operations.open.After(after, tag) {
			others := tag != 0 && o.spec.Request.ToolInvocation != invocation
			if !others && !yield(number, o.seen()) {
				return
			}
		}
	}
}

// entryOf is Entries of one name.
func (s *View) entryOf(name string, after uint64) iter.Seq2[uint64, view.Entry] {
	return func(yield func(uint64, view.Entry) bool) {
		if o := s.operations.byName[name]; o != nil && !o.done() && o.age > after {
			yield(o.age, o.seen())
		}
	}
}

// seen returns what patterns see of an operation that is not done.
func (o *operation) seen() view.Entry {
	e := view.Entry{Operation: o.spec}
	if w := o.task.worker(); w != nil {
		e.Worker = w.Key
	}
	return e
}

// Held returns operations, at most so many, whose workers have had their actions since before a
// time. It looks at every worker.
func (s *View) Held(since time.Time, atMost int) (held []event.Held) {
	for _, w := range s.workers.All() {
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
				Worker: w.Key, ID: w.ID, Prefix: w.pool.Prefix, WorkerPlatform: w.pool.Platform, SizeClass: w.queue.class,
			})
		}
	}
	return held
}

// QueueCounts returns the counts of all queues, sorted by prefix, platform and size class; Fill
// sets the fields after Executing and Queued. It looks at every worker.
func (s *View) QueueCounts() (queues []view.Queue) {
	for _, p := range s.dispatch.pools.Sorted() {
		for _, q := range p.queues {
			v := view.Queue{Prefix: p.Prefix, Platform: p.Platform, SizeClass: q.class, Queued: q.waiting}
			v.Loads = make([]view.Load, 0, len(q.programs))
			for _, program := range q.programs {
				load := program.load()
				v.Executing += load.Actions
				v.Loads = append(v.Loads, load)
				v.Workers.Add(program.condition())
			}
			queues = append(queues, v)
		}
	}
	return queues
}

// Fill sets all remaining fields of a queue of QueueCounts, with a limited number of branches,
// unless the queue has gone meanwhile.
func (s *View) Fill(v *view.Queue, branches int) {
	p := s.dispatch.pools.Get(offer.Offer{Prefix: v.Prefix, Platform: v.Platform, Exact: s.cfg.Match == tuning.MatchExact})
	if p == nil {
		return
	}
	for _, q := range p.queues {
		if q.class != v.SizeClass {
			continue
		}
		v.Root = q.branches(v.Executing, branches)
		if t := q.head(s.Now); t != nil {
			v.Head, v.HeadSince, v.Why = t.spec, t.queued, s.whyWaits(q, t)+v.Root.Behind()
		} else if q.waiting > 0 {
			v.Why = allHeld
		}
	}
}

// Unmatched returns the state of unmatched actions.
func (s *View) Unmatched() (unmatched view.Queue) {
	unmatched.Queued = s.dispatch.unmatched.Len()
	if t := s.dispatch.unmatched.First(); t != nil {
		unmatched.Head, unmatched.HeadSince, unmatched.Why = t.spec, t.queued, s.dispatch.pools.explain(t.spec)
	}
	return unmatched
}

// branches returns the queue by its keys; see view.BranchOf.
func (q *queue) branches(running, atMost int) view.Branch {
	root := view.BranchOf(q.pool.tree.Root(q.class), atMost, func(key string) string { return q.pool.cohort.WhyHeld(key, q.class) })
	root.Queued, root.Running = q.waiting, running
	return root
}

// Programs returns the key of each program with a worker that p matches (nil: of all programs),
// with the key of one of its workers.
func (s *View) Programs(p *pattern.Pattern) map[string]string {
	list := map[string]string{}
	for _, pool := range s.dispatch.pools.Sorted() {
		for _, q := range pool.queues {
			for key, of := range q.programs {
				w := of.matching(p)
				if w == nil {
					continue
				}
				if pool.Prefix != "" {
					key = pool.Prefix + "/" + key
				}
				list[key] = w.Key
			}
		}
	}
	return list
}

// Matching returns the number of programs with a worker that p matches.
func (s *View) Matching(p *pattern.Pattern) (n int) {
	for pool := range s.dispatch.pools.All() {
		for _, q := range pool.queues {
			for _, of := range q.programs {
				if of.matching(p) != nil {
					n++
				}
			}
		}
	}
	return n
}

// matching returns a worker of a program that p matches, any if it is nil; nil: there is none.
func (p *program) matching(which *pattern.Pattern) *worker {
	some := p.positions
	if which == nil || !which.Names(names.PositionKey) && !which.Names(names.ThreadKey) {
		some = some[:1] // they differ in nothing else
	}
	for _, w := range some {
		if which == nil || which.Match(w.Attribute) {
			return w
		}
	}
	return nil
}

// Program returns the state of the program of a worker; false if it is unknown.
func (s *View) Program(worker string) (view.Program, bool) {
	of := s.workers.Get(worker)
	if of == nil {
		return view.Program{}, false
	}
	p := of.program
	v := view.Program{
		Worker: p.positions[0].Key, ID: p.identity(), Prefix: of.pool.Prefix, Platform: of.pool.Platform, SizeClass: of.queue.class,
		Condition: p.condition(), Load: p.load(), Drained: true,
		Standing: p.record.Standing(), Until: p.record.Until(), Row: p.record.Row(), Failures: p.record.Failures(),
	}
	for _, w := range p.positions {
		v.Drained = v.Drained && w.takes.isDrained()
		if v.Address == "" {
			v.Address = w.address
		}
		if w.twin != nil && w.twin.refused.After(v.Refused) {
			v.Address, v.Twin, v.Refused = w.address, w.twin.address, w.twin.refused
		}
		v.Positions = append(v.Positions, w.view())
	}
	return v, true
}

// SizeClasses returns the size classes on which an action could run, in ascending order, as of the
// last event: those of the workers that would get it, and the declared ones. Workers without a
// class count as class 1 if others have one.
func (s *View) SizeClasses(spec *request.Operation) (classes []view.SizeClass) {
	q := s.dispatch.pools.match(spec, 0, true, nil)
	if q == nil {
		return nil
	}
	for _, other := range q.pool.queues {
		if (other.expected() || other == q) && other.admits(spec.Instance) {
			classes = append(classes, view.SizeClass{Size: other.class, Wait: other.wait()})
		}
	}
	if len(classes) > 1 {
		classes[0].Size = max(classes[0].Size, 1)
	}
	return classes
}

// Circumstances returns circumstances under which workers that take work may run an operation
// (event.Report): at most so many, those of the most programs first.
func (s *View) Circumstances(spec *request.Operation, atMost int) (all []string) {
	q := s.dispatch.pools.match(spec, 0, false, nil)
	if q == nil {
		return nil
	}
	programs := map[string]int{}
	for _, other := range q.pool.queues {
		if !other.admits(spec.Instance) {
			continue
		}
		for circumstances, n := range other.alike.Serving(func(p *program) bool { return p.serving() > 0 }) {
			programs[circumstances] += n
		}
	}
	all = slices.SortedFunc(maps.Keys(programs), func(a, b string) int {
		return cmp.Or(cmp.Compare(programs[b], programs[a]), cmp.Compare(a, b))
	})
	return all[:min(len(all), atMost)]
}

// AllSizeClasses is SizeClasses for actions of an instance name, on any platform; of equal classes
// it returns the one with the shortest wait.
func (s *View) AllSizeClasses(instanceName string) (classes []view.SizeClass) {
	for p := range s.dispatch.pools.All() {
		if instance.Below(instanceName, p.Prefix) {
			classes = append(classes,
				s.SizeClasses(&request.Operation{Instance: instanceName, Platform: p.Platform})...)
		}
	}
	slices.SortFunc(classes, func(a, b view.SizeClass) int {
		return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Wait, b.Wait))
	})
	return slices.CompactFunc(classes, func(a, b view.SizeClass) bool { return a.Size == b.Size })
}

// Quota returns the quota of a key; the zero Quota if there is none.
func (s *View) Quota(k quota.Key) quota.Quota {
	for _, c := range s.dispatch.pools.cohorts {
		if c.Name == k.Cohort {
			q, _ := c.Quota(k.Instance)
			return q
		}
	}
	return quota.Quota{}
}

// QuotaRecords returns all quotas, sorted by key.
func (s *View) QuotaRecords() (records []quota.Record) {
	for _, c := range s.dispatch.pools.cohorts {
		records = append(records, c.Quotas()...)
	}
	slices.SortFunc(records, func(a, b quota.Record) int {
		return cmp.Or(cmp.Compare(a.Cohort, b.Cohort), cmp.Compare(a.Instance, b.Instance))
	})
	return records
}

// Cohorts returns the state of all cohorts, in the order of the configuration.
func (s *View) Cohorts() []view.Cohort {
	views := make([]view.Cohort, 0, len(s.dispatch.pools.cohorts))
	for _, c := range s.dispatch.pools.cohorts {
		v := view.Cohort{
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

// QuotaRuns returns the runs behind the uses in Cohorts as of the same event, in any order. It looks
// at every worker.
func (s *View) QuotaRuns() []view.QuotaRun {
	runs := make([]view.QuotaRun, 0, s.dispatch.executing)
	for _, w := range s.workers.All() {
		if sh := w.share(); sh != nil {
			runs = append(runs, view.QuotaRun{
				Key: sh.Key(), Operation: w.task.spec, Worker: w.Key, Started: w.task.started, Cost: sh.Cost(),
			})
		}
	}
	return runs
}

// Suspects returns the common identity of each program that is suspended or on trial, a limited
// number of them, in order.
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
