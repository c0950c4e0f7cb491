package core

import (
	"cmp"
	"slices"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// newPool returns a pool without workers.
func (d *dispatcher) newPool(prefix string, platform request.Platform) *pool {
	p := &pool{prefix: prefix, platform: platform, exact: d.cfg.Match == MatchExact, levels: d.cfg.levels(prefix, platform)}
	config, ok := d.cfg.Quotas.Of(func(name, value string) bool {
		return platform.Has(name, value)
	})
	if !ok {
		p.tree = levels.NewTree(p.levels, nil)
		return p
	}
	c := d.cohort(config.Name)
	p.cohort, c.pools = c, append(c.pools, p)
	if len(p.levels) == 0 || p.levels[0].Key != levels.KeyInstance {
		p.levels = append([]levels.Level{{Key: levels.KeyInstance}}, p.levels...)
	}
	p.tree = levels.NewTree(p.levels, c.Grade)
	return p
}

// cohort returns the one of a name; nil if there is none.
func (d *dispatcher) cohort(name string) *cohort {
	for _, c := range d.cohorts {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// match returns the queue that has to run an action; nil if no worker can. One that
// is served, or declared if the action is patient, goes before one that only is open; then candidates says which pool, or
// the shortest wait where it does not, and then the size class that is wanted, 0 being the largest. Where one action
// takes more than its instance's maximum it could wait for ever.
func (d *dispatcher) match(spec *request.Operation, class uint32, patient bool) *queue {
	var best, open *queue
	var rank candidate
	fits := func(q *queue) bool { return (q.served() || patient && q.declared) && q.admits(spec.Instance) }
	for c := range d.pools.candidates(spec) {
		if best != nil && !c.equals(rank) {
			break
		}
		if q := c.suited(class, fits); q == nil {
			if open == nil {
				open = c.suited(class, func(q *queue) bool { return q.open() && q.admits(spec.Instance) })
			}
		} else if best == nil || q.sooner(best) {
			best, rank = q, c
		}
	}
	return cmp.Or(best, open)
}

// queueFor returns the queue that has to run a task. One that has failed on a small size class stays in its pool, in which it
// is to run on the largest.
func (d *dispatcher) queueFor(t *task) *queue {
	if t.pool != nil && t.course.largest() {
		if q := t.pool.largest(t.takenBy); q != nil {
			return q
		}
	}
	return d.match(t.spec, t.class(), !t.impatient)
}

// declare makes the queues of the classes that are declared. They stay for good.
func (d *dispatcher) declare() {
	for _, c := range d.cfg.Sizes {
		p := d.pool(c.Prefix, c.platform())
		p.startup, p.patience = c.Startup, c.Patience
		for _, class := range c.Classes {
			q := p.queue(class)
			q.declared, q.away = true, true
		}
	}
}

// serve notes whether a worker takes work, if operators let it.
func (d *dispatcher) serve(w *worker, may bool) {
	takes := drained
	switch {
	case may && w.prefersIdle:
		takes = resting
	case may && w.program.withholds(w):
		takes = suspended
	case may:
		takes = serving
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
	case serving:
		q.serving++
		d.Timers.Stop(&q.rest)
	case resting:
		q.resting++
		if q.serving == 0 && !q.rest.IsSet() {
			d.Timers.Set(&q.rest, d.Now.Add(d.cfg.MatchGrace))
		}
	case drained:
		q.drained++
	case suspended:
		q.suspended++
	}
	d.amnesty(q)
	d.watch(q)
	switch {
	case q.open() && !open:
		d.rematchUnmatched(func(t *task) bool { return w.pool.serves(t.spec) })
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
	case serving:
		q.serving--
	case resting:
		q.resting--
	case drained:
		q.drained--
	case suspended:
		q.suspended--
	}
	if q.resting == 0 {
		d.Timers.Stop(&q.rest)
	} else if q.serving == 0 && w.takes == serving {
		d.Timers.Set(&q.rest, d.Now.Add(d.cfg.MatchGrace))
	}
	w.takes = unheard
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
	if d.hasOther(q) || !q.open() {
		d.rematch(q.tasks())
	}
}

// hasOther reports whether another queue is served that may take some of what waits in one.
func (d *dispatcher) hasOther(q *queue) bool {
	for _, p := range d.pools.byKey {
		if p.largest((*queue).served) != nil && (p == q.pool || p.mayTake(q)) {
			return true
		}
	}
	return false
}

// mayTake reports whether a pool fits some of what waits in a queue of another one.
func (p *pool) mayTake(q *queue) bool {
	if !instance.Below(p.prefix, q.pool.prefix) && !instance.Below(q.pool.prefix, p.prefix) {
		return false
	}
	for _, a := range q.asked {
		if p.fits(a.platform) {
			return true
		}
	}
	return false
}

// relieve has a queue that is served again take what waits for those that are not.
func (d *dispatcher) relieve(q *queue) {
	var left []*queue
	for _, p := range d.pools.byKey {
		for _, other := range p.queues {
			if !other.served() && len(other.asked) > 0 && (p == q.pool || q.pool.mayTake(other)) {
				left = append(left, other)
			}
		}
	}
	slices.SortFunc(left, func(a, b *queue) int {
		return cmp.Or(comparePools(a.pool, b.pool), cmp.Compare(a.class, b.class))
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
