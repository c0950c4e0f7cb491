package core

import (
	"cmp"
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// pool returns the one of workers with a prefix and platform, made if need be.
func (d *dispatcher) pool(prefix string, platform request.Platform) *pool {
	p, widened := d.pools.enter(prefix, platform)
	if widened {
		d.rematchUnmatched(func(t *task) bool { return p.Serves(t.spec) })
		for _, q := range p.queues {
			if q.served() {
				d.relieve(q)
			}
		}
	}
	return p
}

// serve notes whether a worker takes work, if operators let it.
func (d *dispatcher) serve(w *worker, may bool) {
	takes := Drained
	switch {
	case may && w.prefersIdle:
		takes = Resting
	case may && w.program.withholds(w):
		takes = Suspended
	case may:
		takes = Serving
	}
	if takes == w.takes || !takes.counts() && !w.takes.counts() {
		w.takes = takes
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
	case Drained:
		q.drained++
	case Suspended:
		q.suspended++
	}
	d.amnesty(q)
	d.watch(q)
	switch {
	case q.open() && !open:
		d.rematchUnmatched(func(t *task) bool { return w.pool.Serves(t.spec) })
	case !q.served():
		d.vacate(q)
	}
	if q.served() && !served {
		d.relieve(q)
	}
}

// withdraw takes a worker from those that serve its queue or rest; vacate follows.
func (d *dispatcher) withdraw(w *worker) {
	q := w.queue
	d.touched.add(w.pool)
	switch w.takes {
	case Serving:
		q.serving--
	case Resting:
		q.resting--
	case Drained:
		q.drained--
	case Suspended:
		q.suspended--
	}
	if q.resting == 0 {
		d.Timers.Stop(&q.rest)
	} else if q.serving == 0 && w.takes == Serving {
		d.Timers.Set(&q.rest, d.Now.Add(d.cfg.MatchGrace))
	}
	w.takes = Unheard
}

// vacate moves the tasks of a queue that nobody serves, if there is another for them,
// or if it is no longer open. A declared one keeps them for a while.
func (d *dispatcher) vacate(q *queue) {
	d.watch(q)
	if q.declared {
		return
	}
	if q.waiting+len(q.parked) == 0 || q.served() {
		return
	}
	if d.pools.hasOther(q) || !q.open() {
		d.rematch(q.tasks())
	}
}

// relieve has a queue that is served again take what waits for those that are not.
func (d *dispatcher) relieve(q *queue) {
	var left []*queue
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

// watch has what waits in a queue wait for so long only, while it is declared and has no worker, or has drained ones only.
func (d *dispatcher) watch(q *queue) {
	away := q.expectsSomebody()
	patience := q.patience(d.cfg)
	if away == q.away && (!away || patience == q.awaited) {
		return
	}
	q.away, q.awaited = away, patience
	for _, t := range q.tasks() {
		switch {
		case !away:
			d.Timers.Stop(&t.timer)
		case t.impatient:
			d.rematch([]*task{t})
		default:
			d.Timers.Set(&t.timer, d.Now.Add(patience))
		}
	}
}

// expectsSomebody reports whether what waits does so for workers to come, or to be undrained.
func (q *queue) expectsSomebody() bool { return !q.staffed() && (q.declared || q.drained > 0) }

// rematchInstance moves what waits of an instance where it has no room or where nobody serves, and what waits for it to have
// some.
func (d *dispatcher) rematchInstance(c *cohort, instance string) {
	for _, p := range c.pools {
		for _, q := range p.queues {
			if q.admits(instance) && (q.served() || q.declared) {
				continue
			}
			var tasks []*task
			for _, sh := range q.quotas.Waiting(instance) {
				tasks = append(tasks, sh.Owner.(*task))
			}
			d.rematch(tasks)
		}
	}
	d.rematchUnmatched(func(t *task) bool { return levels.Bounded(t.spec.Instance) == instance })
}

// forget takes a worker that is gone from its queue, and forgets queue and pool if they were its alone.
func (d *dispatcher) forget(w *worker) {
	q, p := w.queue, w.pool
	q.workers--
	if q.workers > 0 || q.declared {
		return
	}
	d.Timers.Stop(&q.overflow.timer)
	p.queues = slices.DeleteFunc(p.queues, func(x *queue) bool { return x == q })
	if len(p.queues) == 0 {
		d.pools.discard(p)
	}
}
