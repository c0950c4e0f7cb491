package core

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/spill"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// overflows have what waits in the queue of a size class go to idle workers of larger classes of
// its pool: what is next there, whenever package spill says that it is worth one. They look at the
// pools that an event has touched.
type overflows struct {
	*timer.Clock
	cfg      *Config
	dispatch *dispatcher
	// count counts the tasks that went to larger workers.
	count uint64
}

// settle has what waits in the pools that the event has touched go to larger workers, where that is worth it.
func (o *overflows) settle() {
	ts := &o.dispatch.touched
	for len(ts.list) > 0 {
		p := ts.list[0]
		for o.spill(p) {
			if !o.dispatch.effort.spend(endEffort) {
				return
			}
		}
		for _, q := range p.queues {
			o.await(q)
		}
		ts.next()
	}
}

// spill gives an idle worker to the queue of a pool that is worth it most; false: none is.
func (o *overflows) spill(p *pool) bool {
	var best *task
	var to *queue
	most := 0.0
	for _, q := range p.queues {
		larger, t := q.largerFor(o.Now)
		if t == nil {
			q.overflow.open = q.overflow.open && q.waiting > 0
			continue
		}
		what, turns, waited := q.spills(), q.turns(larger, o.cfg), o.Now.Sub(t.queued)
		q.overflow.open = what.Worth(turns, waited, q.overflow.open)
		if strain := what.Strain(turns, waited); q.overflow.open && strain >= most {
			best, to, most = t, larger, strain
		}
	}
	if best == nil {
		return false
	}
	o.count++
	o.dispatch.assign(best, p.tree.Nearest(&best.item, to.class).Owner.(*worker))
	return true
}

// await has a queue be looked at when what is next in it has waited for long enough.
func (o *overflows) await(q *queue) {
	larger, t := q.largerFor(o.Now)
	if t == nil {
		o.Timers.Stop(&q.overflow.timer)
		return
	}
	o.Timers.Set(&q.overflow.timer, t.queued.Add(q.spills().Patience(q.turns(larger, o.cfg))))
}

// touched are pools of which the present event has changed what waits, or who is idle. Only where there are several
// size classes does that matter.
type touched struct{ list []*pool }

func (ts *touched) add(p *pool) {
	if len(p.queues) > 1 && !p.touched {
		p.touched = true
		ts.list = append(ts.list, p)
	}
}

// next takes the first one from the list.
func (ts *touched) next() {
	ts.list[0].touched = false
	ts.list[0] = nil
	if ts.list = ts.list[1:]; len(ts.list) == 0 {
		ts.list = nil
	}
}

// largerFor returns the queue of the smallest larger class that has an idle worker, and what of q
// goes there first; nil if nothing does.
func (q *queue) largerFor(now time.Time) (larger *queue, next *task) {
	if q.waiting == 0 {
		return nil, nil
	}
	larger = q.pool.smallest(q.size()+1, func(x *queue) bool { return q.pool.tree.Idle(x.class) > 0 })
	if larger == nil {
		return nil, nil
	}
	if q.quotas == nil {
		return larger, q.head(now)
	}
	it := q.pool.tree.NextAmong(q.class, now, func(instance string) bool {
		return larger.quotas.Grade(instance) != fair.Wait
	})
	if it == nil {
		return larger, nil
	}
	return larger, it.Owner.(*task)
}

// turns is how many turns what waits in q does so rather than go to a larger class.
func (q *queue) turns(larger *queue, c *Config) float64 {
	return spill.Turns(q.class, larger.class, c.SizeExponent)
}

// spills is what package spill goes by.
func (q *queue) spills() spill.Queue {
	return spill.Queue{
		Waiting: q.waiting, Workers: q.serving, Typical: q.load.mean(q.waiting), Startup: q.pool.startup,
	}
}
