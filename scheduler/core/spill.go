package core

import (
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/spill"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// overflows have what waits go to idle workers for which it is not: of larger size classes of its
// pool, and of other pools. It is what is next there, whenever package spill says that it is worth
// one. They look at the queues of the pools that an event has touched, and at those that reach them.
type overflows struct {
	*timer.Clock
	cfg      *Config
	dispatch *dispatcher
	// spilled and moved count the tasks that went to larger workers of their pool, and to other pools.
	spilled, moved uint64
	// batch are the queues of which what is worth most goes first.
	batch []*queue
}

// mostTogether bounds the queues that are compared, mostSought the pools with idle workers of which it is looked for what may go there.
const mostTogether, mostSought = 64, 8

// A spillage is what is the first to go from a queue to another one, which has an idle worker.
type spillage struct {
	task  *task
	to    *queue
	turns float64
}

// settle has what waits go to workers for which it is not, where that is worth it.
func (o *overflows) settle() {
	d := o.dispatch
	for d.refresh() {
		switch {
		case len(d.touched.list) > 0:
			p := d.touched.list[0]
			for _, q := range p.queues {
				d.reaches.mark(q)
			}
			if p.hasIdle() {
				d.reaches.others(p, d.reaches.mark)
			}
			d.touched.next()
		case len(d.reaches.marked) == 0 || !o.settleMarked():
			return
		}
	}
}

// settleMarked does so for some of the marked queues; false: the event may do no more.
func (o *overflows) settleMarked() bool {
	r := &o.dispatch.reaches
	n := min(len(r.marked), mostTogether)
	o.batch = append(o.batch[:0], r.marked[:n]...)
	for o.spill(o.batch) {
		if !o.dispatch.effort.spend(endEffort) {
			return false
		}
	}
	for _, q := range o.batch {
		q.overflow.marked = false
		o.await(q)
	}
	clear(o.batch)
	clear(r.marked[:n])
	if r.marked = r.marked[n:]; len(r.marked) == 0 {
		r.marked = nil
	}
	return o.dispatch.effort.spend(n)
}

// spill gives an idle worker to the queue that is worth it most; false: none is.
func (o *overflows) spill(queues []*queue) bool {
	var best spillage
	most := 0.0
	for _, q := range queues {
		s := o.next(q)
		if s.task == nil {
			q.overflow.open = q.overflow.open && q.waiting > 0
			continue
		}
		what, waited := q.spills(), o.Now.Sub(s.task.queued)
		worth := what.Worth(s.turns, waited, q.overflow.open)
		if s.turns > 0 {
			q.overflow.open = worth
		}
		if strain := what.Strain(s.turns, waited); worth && strain >= most {
			best, most = s, strain
		}
	}
	if best.task == nil {
		return false
	}
	o.give(best)
	return true
}

// give has a worker run what is not for it.
func (o *overflows) give(s spillage) {
	if s.task.pool != s.to.pool {
		o.moved++
		o.dispatch.dequeue(s.task)
		o.dispatch.queued++
		o.dispatch.place(s.task, s.to)
		return
	}
	o.spilled++
	o.dispatch.assign(s.task, s.to.pool.tree.Nearest(&s.task.item, s.to.class).Owner.(*worker))
}

// await has a queue be looked at when what is next in it has waited for long enough.
func (o *overflows) await(q *queue) {
	s := o.next(q)
	if s.task == nil {
		o.Timers.Stop(&q.overflow.timer)
		return
	}
	o.Timers.Set(&q.overflow.timer, s.task.queued.Add(q.spills().Patience(s.turns)))
}

// next returns where what is next in a queue costs least.
func (o *overflows) next(q *queue) spillage {
	larger, t := q.largerFor(o.Now)
	best := spillage{task: t, to: larger}
	if t != nil {
		best.turns = q.turns(larger, 0, o.cfg)
	}
	if other := o.dispatch.elsewhere(q); other.task != nil && (t == nil || other.turns < best.turns) {
		return other
	}
	return best
}

// touched are pools of which the present event has changed what waits, or who is idle.
type touched struct{ list []*pool }

// touch notes one, if there is anywhere else to go.
func (d *dispatcher) touch(p *pool) {
	if !p.touched && (len(p.queues) > 1 || d.pools.Len() > 1) {
		p.touched = true
		d.touched.list = append(d.touched.list, p)
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
	if larger = q.pool.smallest(q.size()+1, (*queue).hasIdle); larger == nil {
		return nil, nil
	}
	if q.quotas == nil {
		return larger, q.head(now)
	}
	it := q.pool.tree.Find(q.class, larger.hasRoom, func(*fair.Item) bool { return true })
	if it == nil {
		return larger, nil
	}
	return larger, it.Owner.(*task)
}

// elsewhere returns what of a queue may go to an idle worker of another pool, where that costs least.
func (d *dispatcher) elsewhere(q *queue) (best spillage) {
	if q.waiting == 0 || d.pools.idling == 0 || !d.isCurrent(q) {
		return best
	}
	sought := 0
	for _, p := range q.reach.pools {
		to := p.smallest(q.size(), (*queue).hasIdle)
		if to == nil {
			continue
		}
		if t := q.firstFor(to); t != nil {
			turns := q.turns(to, p.Stranger(q.pool.Offer, t.spec.Platform), d.cfg)
			if best.task == nil || turns < best.turns {
				best = spillage{t, to, turns}
			}
		}
		if sought++; sought == mostSought || best.task != nil && best.turns == 0 {
			break
		}
	}
	return best
}

// firstFor returns what of a queue is the first to go to one of another pool; nil: nothing.
func (q *queue) firstFor(to *queue) *task {
	it := q.pool.tree.Find(q.class, func(string) bool { return true }, func(it *fair.Item) bool {
		spec := it.Owner.(*task).spec
		return to.pool.Fits(spec.Platform) && to.admits(spec.Instance) && to.hasRoom(levels.Bounded(spec.Instance))
	})
	if it == nil {
		return nil
	}
	return it.Owner.(*task)
}

// hasRoom reports whether an instance may have more running.
func (q *queue) hasRoom(instance string) bool {
	return q.quotas == nil || q.quotas.Grade(instance) != fair.Wait
}

func (q *queue) hasIdle() bool { return q.pool.tree.Idle(q.class) > 0 }

func (p *pool) hasIdle() bool { return slices.ContainsFunc(p.queues, (*queue).hasIdle) }

// turns is how many turns what waits in q does so rather than go to another one, which is so much stranger.
func (q *queue) turns(to *queue, stranger int, c *Config) float64 {
	return spill.Turns(q.class, to.class, stranger, c.SizeExponent)
}

// spills is what package spill goes by.
func (q *queue) spills() spill.Queue {
	return spill.Queue{
		Waiting: q.waiting, Workers: q.serving, Typical: q.load.Mean(q.waiting), Startup: q.pool.startup,
	}
}
