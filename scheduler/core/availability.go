package core

import (
	"cmp"
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
)

// pool returns the one of workers with a prefix and platform, made if need be.
func (d *dispatcher) pool(prefix string, platform request.Platform) *pool {
	p, narrower := d.pools.enter(prefix, platform)
	switch narrower {
	case nil:
	case p:
		d.sweep(&d.unmatched)
		for _, q := range p.queues {
			if q.served() {
				d.relieve(q)
			}
		}
	default:
		d.succeed(narrower)
	}
	return p
}

// succeed has new pools of workers that report more take the place of one that has declared size
// classes and no workers: it stood for them, and its tasks go there.
func (d *dispatcher) succeed(p *pool) {
	if p.hasWorkers() {
		return
	}
	for _, q := range slices.Clone(p.queues) {
		q.declared = false
		d.vacate(q)
		d.discard(q)
	}
}

// serve notes whether a worker takes work, if operators let it, and whether it prefers to be idle.
func (d *dispatcher) serve(w *worker, may, prefersIdle bool) {
	takes := Drained
	switch {
	case !may && prefersIdle:
		takes = DrainedResting
	case may && prefersIdle:
		takes = Resting
	case may && w.queue.ill > 0 && w.program.withholds(w):
		takes = Suspended
	case may:
		takes = Serving
	}
	if takes == w.takes || takes.isDrained() && w.takes.isDrained() {
		w.takes = takes // its queue counts it already
		return
	}
	q, open, served := w.queue, w.queue.open(), w.queue.served()
	d.withdraw(w)
	w.takes = takes
	w.shield()
	switch takes {
	case Serving:
		q.serving++
		d.Timers.Stop(&q.rest)
	case Resting:
		q.resting++
		if q.serving == 0 && !q.rest.IsSet() {
			d.Timers.Set(&q.rest, d.Now.Add(d.cfg.MatchGrace))
		}
	case Drained, DrainedResting:
		q.drained++
	case Suspended:
		q.suspended++
	}
	d.amnesty(q)
	d.watch(q)
	switch {
	case q.open() && !open:
		d.sweep(&d.unmatched)
	case !q.served():
		d.vacate(q)
	}
	if q.served() && !served {
		d.relieve(q)
	}
}

// withdraw removes a worker from those that serve its queue or rest; vacate follows.
func (d *dispatcher) withdraw(w *worker) {
	q := w.queue
	d.reaches.touch(w.pool)
	switch w.takes {
	case Serving:
		q.serving--
	case Resting:
		q.resting--
	case Drained, DrainedResting:
		q.drained--
	case Suspended:
		q.suspended--
	}
	if q.resting == 0 {
		d.Timers.Stop(&q.rest)
	} else if q.serving == 0 && w.takes == Serving {
		d.Timers.Set(&q.rest, d.Now.Add(d.cfg.MatchGrace))
	}
	w.takes = Unreported
}

// vacate moves the tasks of a queue without serving workers, if another queue can have them, or if
// the queue is no longer open. A declared queue keeps them for a while.
func (d *dispatcher) vacate(q *queue) {
	d.watch(q)
	if q.declared {
		return
	}
	if q.line.Len() == 0 || q.served() {
		return
	}
	d.effort.Spend(d.pools.Len() / poolsPerEffort)
	if d.pools.hasOther(q) || !q.open() {
		d.sweep(&q.line)
	}
}

// relieve gives a queue that is served again the tasks that wait for queues that are not served.
func (d *dispatcher) relieve(q *queue) {
	var left []*queue
	d.effort.Spend(d.pools.Len() / poolsPerEffort)
	for p := range d.pools.All() {
		for _, other := range p.queues {
			if !other.served() && len(other.asked) > 0 && (p == q.pool || q.pool.mayTake(other)) {
				left = append(left, other)
			}
		}
	}
	slices.SortFunc(left, func(a, b *queue) int {
		return cmp.Or(offer.Compare(a.pool.Offer, b.pool.Offer), cmp.Compare(a.class, b.class))
	})
	for _, other := range left {
		d.vacate(other)
	}
}

// watch limits the wait in a queue that is declared and has no worker, or has drained ones only.
func (d *dispatcher) watch(q *queue) {
	away, patience := q.expectsSomebody(), q.patience(d.cfg)
	if away == q.away && (!away || patience == q.absence.patience) {
		return
	}
	q.away, q.absence.patience, q.absence.since = away, patience, d.Awake()
	q.absence.await(d.Clock)
	if away && q.impatient > 0 {
		d.sweep(&q.line)
	}
}

// expectsSomebody reports whether tasks wait for workers to connect or to be undrained.
func (q *queue) expectsSomebody() bool { return !q.staffed() && (q.declared || q.drained > 0) }

// rematchInstance moves an instance's tasks that wait where its quota has no room or where no
// worker serves, also outside of the cohort, and the tasks that wait for room.
func (d *dispatcher) rematchInstance(c *cohort, instance string) {
	d.effort.Spend(d.pools.Len() / poolsPerEffort)
	for _, p := range d.pools.Sorted() {
		for _, q := range p.queues {
			left := !q.served() && !q.declared
			if p.cohort != c && left || p.cohort == c && q.quotas.Waits(instance) && (left || !q.admits(instance)) {
				d.sweep(&q.line)
			}
		}
	}
	d.sweep(&d.unmatched)
}

// forget removes a worker that is gone from its queue. If it was the last one, it also removes the
// queue and the pool.
func (d *dispatcher) forget(w *worker) {
	w.queue.workers--
	d.discard(w.queue)
}

// discard forgets a queue that has neither workers nor tasks, and its pool if that has no workers.
// While tasks are still to be moved, the queue stays for them, but no lookup finds the pool any
// more.
func (d *dispatcher) discard(q *queue) {
	p := q.pool
	if q.workers > 0 || q.declared {
		return
	}
	if q.line.Len() == 0 {
		d.Timers.Stop(&q.overflow.timer)
		d.Timers.Stop(&q.absence.timer)
		d.Timers.Stop(&q.unwanted.timer)
		p.queues = slices.DeleteFunc(p.queues, func(x *queue) bool { return x == q })
	}
	if !slices.ContainsFunc(p.queues, func(x *queue) bool { return x.workers > 0 || x.declared }) {
		d.pools.discard(p)
	}
}

// sweep schedules a look at all tasks of a line, and a move of those for which another location is
// now right.
func (d *dispatcher) sweep(l *sweep.Line[*task]) {
	d.sweeps.Start(l)
	d.goOn()
}

// goOn makes sweeps go on, as far as the event may.
func (d *dispatcher) goOn() { d.sweeps.GoOn(&d.effort, d.advance) }

// advance looks at tasks of a line and moves those that belong elsewhere, the oldest of a queue
// first.
func (d *dispatcher) advance(l *sweep.Line[*task]) {
	q, _ := l.Owner.(*queue)
	found := l.Look(&d.effort, moveEffort, func(t *task) bool { return d.pools.stays(t, q) })
	if q != nil {
		slices.SortFunc(found, byAge)
	}
	for _, t := range found {
		if t.waitsIn(q) { // earlier moves have not taken it along
			d.rematch(t)
		}
	}
}

// discardSwept forgets queues that were kept for their remaining tasks. It runs at the end of an
// event, when no code looks at them.
func (d *dispatcher) discardSwept() {
	for _, l := range d.sweeps.Ended() {
		if q, ok := l.Owner.(*queue); ok {
			d.discard(q)
		}
	}
}

// isBehind reports whether work of earlier events is left.
func (d *dispatcher) isBehind() bool {
	return d.sweeps.IsBehind() || d.reaches.isBehind() ||
		slices.ContainsFunc(d.pools.cohorts, func(c *cohort) bool { return c.IsBehind() })
}

// reviews look at all workers again, in the order in which they came, when something has changed
// for all of them: State has settled, or the drains are others. An event does as much of it as its
// effort allows. A worker that calls meanwhile is looked at then.
type reviews struct {
	drains   *drain.List
	dispatch *dispatcher
	// everybody are the workers.
	everybody sweep.Line[*worker]
	passes    sweep.Passes[*worker]
}

// start schedules a look at all workers, which begins when the event ends.
func (r *reviews) start() { r.passes.Start(&r.everybody) }

func (r *reviews) isBehind() bool { return r.passes.IsBehind() }

// goOn continues a look at all workers.
func (r *reviews) goOn() {
	e := &r.dispatch.effort
	r.passes.GoOn(e, func(l *sweep.Line[*worker]) {
		for _, w := range l.Look(e, endEffort, r.isCurrent) {
			r.review(w)
		}
	})
	r.passes.Ended()
}

// mayServe reports whether operators let a worker take work. It compares a worker that calls only
// if the drains may be others than when it was compared last.
func (r *reviews) mayServe(w *worker) bool {
	if w.takes == Unreported || r.isBehind() {
		return !r.drains.Matches(w.Attribute)
	}
	return !w.takes.isDrained()
}

// isCurrent reports whether there is nothing to change for a worker.
func (r *reviews) isCurrent(w *worker) bool {
	r.dispatch.effort.Spend(r.drains.Len() / drainsPerEffort)
	return r.mayServe(w) == !w.takes.isDrained() &&
		(!w.isHeld() || w.takes != Serving || w.entry.Waits() || r.dispatch.isSettling())
}

// review applies the drains to a worker, and gives it a queued task if its call is held.
func (r *reviews) review(w *worker) {
	if may := r.mayServe(w); may == w.takes.isDrained() {
		if !may {
			w.unidle() // leave a waiting call open: otherwise the worker would call again at once
		}
		r.dispatch.serve(w, may, w.takes.prefersIdle())
		r.dispatch.calls.serves(w)
	}
	if w.isHeld() && !w.entry.Waits() {
		r.dispatch.offer(w)
	}
}
