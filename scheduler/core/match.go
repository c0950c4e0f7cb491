package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// pool returns the pool of a prefix and platform, made if need be.
func (d *dispatcher) pool(prefix string, platform request.Platform) *pool {
	key := poolKey{prefix, platform.Key()}
	p := d.pools[key]
	if p == nil {
		p = d.newPool(prefix, platform)
		d.pools[key] = p
	}
	return p
}

// newPool returns a pool without workers.
func (d *dispatcher) newPool(prefix string, platform request.Platform) *pool {
	p := &pool{prefix: prefix, platform: platform, levels: d.cfg.levels(prefix, platform)}
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
	p.tree = levels.NewTree(p.levels, c.grade)
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

// sortedPools returns the pools in the order of their prefix and platform.
func (d *dispatcher) sortedPools() []*pool {
	return slices.SortedFunc(maps.Values(d.pools), func(a, b *pool) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.platform.Key(), b.platform.Key()))
	})
}

// match returns the queue that has to run an action; nil if no worker can. One that
// is served, or declared if the action is patient, goes before one that only is open; then the
// longest instance name prefix wins, then the size class that is wanted, 0 being the largest. Where one action
// takes more than its instance's maximum it could wait for ever.
func (d *dispatcher) match(spec *request.Operation, class uint32, patient bool) *queue {
	var open *queue
	fits := func(q *queue) bool { return (q.served() || patient && q.declared) && q.admits(spec.Instance) }
	for prefix := range instance.Prefixes(spec.Instance) {
		p := d.pools[poolKey{prefix, spec.Platform.Key()}]
		if p == nil {
			continue
		}
		if q := p.suited(class, fits); q != nil {
			return q
		}
		if open == nil {
			open = p.suited(class, func(q *queue) bool { return q.open() && q.admits(spec.Instance) })
		}
	}
	return open
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
		d.timers.Stop(&q.rest)
	case resting:
		q.resting++
		if q.serving == 0 && !q.rest.IsSet() {
			d.timers.Set(&q.rest, d.now.Add(d.cfg.MatchGrace))
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
	d.touch(w.pool)
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
		d.timers.Stop(&q.rest)
	} else if q.serving == 0 && w.takes == serving {
		d.timers.Set(&q.rest, d.now.Add(d.cfg.MatchGrace))
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
	elsewhere := false
	for prefix := range instance.Prefixes(q.pool.prefix) {
		p := d.pools[poolKey{prefix, q.pool.platform.Key()}]
		elsewhere = elsewhere || p != nil && p.largest((*queue).served) != nil
	}
	if elsewhere || !q.open() {
		d.rematch(q.tasks())
	}
}

// relieve has a queue that is served again take what waits for those of its pool
// that are not.
func (d *dispatcher) relieve(q *queue) {
	for _, other := range q.pool.queues {
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
			d.timers.Stop(&t.timer)
		case t.impatient:
			d.rematch([]*task{t})
		default:
			d.timers.Set(&t.timer, d.now.Add(patience))
		}
	}
}

// expectsSomebody reports whether what waits does so for workers to come, or to be undrained.
func (q *queue) expectsSomebody() bool { return !q.staffed() && (q.declared || q.drained > 0) }

// rematchInstance moves what waits of an instance where it has no room, and what waits for it to have some.
func (d *dispatcher) rematchInstance(c *cohort, instance string) {
	for _, p := range c.pools {
		for _, q := range p.queues {
			if l := q.lines[instance]; l != nil && !q.admits(instance) {
				d.rematch(l.tasks.all())
			}
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
	d.timers.Stop(&q.overflow.timer)
	p.queues = slices.DeleteFunc(p.queues, func(x *queue) bool { return x == q })
	if len(p.queues) == 0 {
		delete(d.pools, p.key())
		p.leaveCohort()
	}
}
