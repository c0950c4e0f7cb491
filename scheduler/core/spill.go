package core

import (
	"cmp"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/spill"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// An overflow is what goes from a queue to idle workers of larger size classes of its pool: what is next there, whenever
// package spill says that it is worth one.
type overflow struct {
	queue *queue
	// open: it was worth one, and the queue has not become short since.
	open bool
	// timer is when what is next will have waited for so long that it is worth the worker that is idle now.
	timer timer.Timer
}

// touch has a pool be looked at when the event ends: what waits there, or who is idle, has changed.
func (d *dispatcher) touch(p *pool) {
	if len(p.queues) > 1 && !p.touched {
		p.touched = true
		d.touched = append(d.touched, p)
	}
}

// spillTouched has what waits in the pools that the event has touched go to larger workers, where that is worth it.
func (d *dispatcher) spillTouched() {
	for _, p := range d.touched {
		for d.spill(p) {
		}
		for _, q := range p.queues {
			d.await(q)
		}
		p.touched = false
	}
	clear(d.touched)
	d.touched = d.touched[:0]
}

// spill gives an idle worker to the queue of a pool that is worth it most; false: none is.
func (d *dispatcher) spill(p *pool) bool {
	var best *task
	var to *queue
	most := 0.0
	for _, q := range p.queues {
		larger, t := d.largerFor(q)
		if t == nil {
			q.overflow.open = q.overflow.open && q.waiting > 0
			continue
		}
		what, turns, waited := q.spills(), d.turns(q, larger), d.Now.Sub(t.queued)
		q.overflow.open = what.Worth(turns, waited, q.overflow.open)
		if strain := what.Strain(turns, waited); q.overflow.open && strain >= most {
			best, to, most = t, larger, strain
		}
	}
	if best == nil {
		return false
	}
	d.spilled++
	d.assign(best, p.tree.Nearest(&best.item, to.class).Owner.(*worker))
	return true
}

// await has a queue be looked at when what is next in it has waited for long enough.
func (d *dispatcher) await(q *queue) {
	larger, t := d.largerFor(q)
	if t == nil {
		d.Timers.Stop(&q.overflow.timer)
		return
	}
	d.Timers.Set(&q.overflow.timer, t.queued.Add(q.spills().Patience(d.turns(q, larger))))
}

// largerFor returns the queue of the smallest larger class that has an idle worker, and what of q goes there first; nil if
// nothing does.
func (d *dispatcher) largerFor(q *queue) (larger *queue, next *task) {
	if q.waiting == 0 {
		return nil, nil
	}
	larger = q.pool.smallest(q.size()+1, func(x *queue) bool { return q.pool.tree.Idle(x.class) > 0 })
	if larger == nil {
		return nil, nil
	}
	if q.quotas == nil {
		return larger, q.head(d.Now)
	}
	it := q.pool.tree.NextAmong(q.class, d.Now, func(instance string) bool {
		return larger.quotas.Grade(instance) != fair.Wait
	})
	if it == nil {
		return larger, nil
	}
	return larger, it.Owner.(*task)
}

// turns is how many turns what waits in q does so rather than go to a larger class.
func (d *dispatcher) turns(q, larger *queue) float64 {
	return spill.Turns(q.class, larger.class, d.cfg.SizeExponent)
}

// spills is what package spill goes by.
func (q *queue) spills() spill.Queue {
	return spill.Queue{
		Waiting: q.waiting, Workers: q.serving, Typical: q.load.mean(q.waiting), Startup: q.pool.startup,
	}
}

// mean is how long one of so many waiting tasks is thought to take.
func (l *load) mean(waiting int) time.Duration {
	typical := cmp.Or(l.typical, spill.Unknown)
	all := float64(l.known) + float64(l.unknown)*float64(typical)
	return max(time.Duration(all/float64(max(waiting, 1))), time.Millisecond)
}
