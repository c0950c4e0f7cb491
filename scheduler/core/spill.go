package core

import (
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/spill"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// overflows move queued tasks to idle workers of other queues: of larger size classes of their
// pool, and of other pools. The next task moves, when package spill says that it is worth it. They
// look at the queues of the pools that an event has touched, and at those that reach them.
type overflows struct {
	*timer.Clock
	cfg      *tuning.Config
	dispatch *dispatcher
	reaches  *reaches
	// spilled and moved count the tasks that went to larger workers of their pool, and to other
	// pools.
	spilled, moved uint64
	// batch has the first task to move from each of the marked queues that were compared last, in
	// their order.
	batch []spillage
}

const (
	// mostTogether bounds the queues that are compared.
	mostTogether = 64
	// mostSought bounds the idle size classes of other pools for which a queue is searched.
	mostSought = 8
	// glances is how many pools that are only passed by count as a look at a task.
	glances = 16
)

// A spillage is the first task to move from a queue to another one, which has an idle worker.
type spillage struct {
	task  *task
	to    *queue
	turns float64
}

// settle moves queued tasks to workers of other queues, if that is worth it.
func (o *overflows) settle() {
	for o.reaches.refresh() {
		switch {
		case len(o.reaches.touched) > 0:
			if !o.markTouched(o.reaches.touched[0]) {
				return
			}
			o.reaches.untouch()
		case len(o.reaches.marked) == 0 || !o.settleMarked():
			return
		}
	}
}

// markTouched marks the queues of a pool, and those that reach its idle workers. It returns false
// if the event has no effort left.
func (o *overflows) markTouched(p *pool) bool {
	r, reachable := o.reaches, p.hasIdle()
	cost := len(p.queues)
	if reachable {
		cost += len(r.roaming)
	}
	if !o.dispatch.effort.Spend(cost) {
		return false
	}
	for _, q := range p.queues {
		r.mark(q)
	}
	if reachable {
		r.others(p, r.mark)
	}
	return true
}

// settleMarked does so for some of the marked queues; false: the event may do no more.
func (o *overflows) settleMarked() bool {
	r, effort := o.reaches, &o.dispatch.effort
	for o.spill(r.marked[:min(len(r.marked), mostTogether)]) {
		effort.Spend(endEffort)
		if effort.Left <= 0 {
			return false
		}
	}
	for i, s := range o.batch {
		q := r.marked[i]
		q.overflow.marked = false
		o.await(q, s)
		r.marked[i] = nil
	}
	if r.marked = r.marked[len(o.batch):]; len(r.marked) == 0 {
		r.marked = nil
	}
	clear(o.batch)
	return effort.Left > 0
}

// spill gives an idle worker to the queue for which it is worth the most; false: none is. It
// compares as many of the queues as the event may, at least one, and has the first task to move of
// each in batch.
func (o *overflows) spill(queues []*queue) bool {
	var best spillage
	most := 0.0
	o.batch = o.batch[:0]
	for _, q := range queues {
		if len(o.batch) > 0 && o.dispatch.effort.Left <= 0 {
			break
		}
		s := o.next(q)
		o.batch = append(o.batch, s)
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

// give makes a worker run a task of another queue.
func (o *overflows) give(s spillage) {
	if s.task.pool != s.to.pool {
		o.moved++
		o.dispatch.dequeue(s.task)
		o.dispatch.queued++
		o.dispatch.put(s.task, s.to)
		return
	}
	o.spilled++
	o.dispatch.assign(s.task, s.to.willing(s.task))
}

// await schedules a look at a queue for when its first task to move has waited long enough.
func (o *overflows) await(q *queue, s spillage) {
	if s.task == nil {
		o.Timers.Stop(&q.overflow.timer)
		return
	}
	o.Timers.Set(&q.overflow.timer, s.task.queued.Add(q.spills().Patience(s.turns)))
}

// next returns the first task to move from a queue, to the cheapest other queue.
func (o *overflows) next(q *queue) spillage {
	larger, t, looks := q.largerFor()
	best := spillage{task: t, to: larger}
	if t != nil {
		best.turns = q.turns(larger, 0, o.cfg)
	}
	other, idle, more := o.elsewhere(q)
	o.dispatch.effort.Spend(1 + looks + more)
	if larger != nil || idle {
		q.quotas.Expose()
	}
	if other.task != nil && (t == nil || other.turns < best.turns) {
		return other
	}
	return best
}

// elsewhere returns the task of a queue that may move to an idle worker of another pool, to the
// cheapest one. In each pool it is the smallest size class to which a task may move, and the task
// is the first to which that pool is no stranger, or else the first. idle: there is
// an idle worker, even if no task may move there.
func (o *overflows) elsewhere(q *queue) (best spillage, idle bool, looks int) {
	if q.waiting == 0 || o.dispatch.pools.idling == 0 || !o.reaches.isCurrent(q) {
		return best, false, 0
	}
	looks = len(q.reach.pools) / glances
	sought := 0
	for _, p := range q.reach.pools {
		for _, to := range p.queues {
			if to.size() < q.size() || !to.hasIdle() {
				continue
			}
			t, n := q.firstFor(to, p.equals)
			looks, sought = looks+n, sought+1
			if t != nil {
				turns := q.turns(to, p.Stranger(q.pool.Offer, t.spec.Platform), o.cfg)
				if best.task == nil || turns < best.turns {
					best = spillage{t, to, turns}
				}
			}
			if sought == mostSought || best.task != nil && best.turns == 0 {
				return best, true, looks
			}
			if t != nil {
				break
			}
		}
	}
	return best, sought > 0, looks
}

// largerFor returns the queue of the smallest larger class that has an idle worker for a task of q,
// and the task that moves there first. It is the smallest one with idle workers, and no task, if no
// task may.
func (q *queue) largerFor() (larger *queue, next *task, looks int) {
	if q.waiting == 0 {
		return nil, nil, 0
	}
	for to := q.largerIdle(q); to != nil; to = q.largerIdle(to) {
		if larger == nil {
			larger = to
		}
		it, n := q.pool.tree.Find(q.class, fair.Search{For: to.onlyIdle(), May: to.mayRunMore})
		if looks += n; it != nil {
			return to, it.Owner.(*task), looks
		}
	}
	return larger, nil, looks
}

// largerIdle returns the queue of the smallest class that is larger than another one and has idle
// workers; nil if there is none.
func (q *queue) largerIdle(than *queue) *queue {
	return q.pool.smallest(than.size()+1, (*queue).hasIdle)
}

// firstFor returns the first task of a queue that moves to a queue of another pool; nil if there is
// none. If there may be equals, tasks to which the other pool is no stranger, they go first: those
// before them cost more, and may have to wait for a long time yet.
func (q *queue) firstFor(to *queue, equals bool) (first *task, looks int) {
	it, looks := q.pool.tree.Find(q.class, fair.Search{For: to.onlyIdle(), Fits: func(it *fair.Item) bool {
		t := it.Owner.(*task)
		if !q.mayMove(t, to) {
			return false
		}
		if first == nil {
			first = t
		}
		return !equals || q.isAtHome(t.spec.Platform, to.pool)
	}})
	if it == nil {
		return first, looks
	}
	return it.Owner.(*task), looks
}

// isAtHome reports whether another pool suits what asks for a platform as well as that of a queue.
func (q *queue) isAtHome(asked request.Platform, p *pool) bool {
	return p.Stranger(q.pool.Offer, asked) <= 0
}

// mayMove reports whether a task of a queue may run in a queue of another pool.
func (q *queue) mayMove(t *task, to *queue) bool {
	return to.pool.Fits(t.spec.Platform) && to.admits(t.spec.Instance) &&
		to.mayRunMore(levels.Bounded(t.spec.Instance)) && q.promisesNoMore(t, to)
}

// promisesNoMore reports whether a task is no worse off in a queue of another pool if it fails: a
// task for the largest size class runs on the largest one there, and for a task that starts on a
// smaller one the largest one there is as large as here.
func (q *queue) promisesNoMore(t *task, to *queue) bool {
	there := to.pool.largest(t.takenBy)
	if there == nil || t.class() == 0 {
		return there == to
	}
	here := q.pool.largest(t.takenBy)
	return here == nil || there.size() >= here.size()
}

// canSpill reports whether tasks of a queue may ever move to other workers.
func (q *queue) canSpill() bool { return len(q.pool.queues) > 1 || len(q.reach.pools) > 0 }

func (q *queue) hasIdle() bool { return q.pool.tree.Idle(q.class) > 0 }

// hasTakers reports whether a worker could take a task of the queue now, or soon: it is idle, or
// runs something for nobody.
func (q *queue) hasTakers() bool { return q.hasIdle() || len(q.unwanted.list) > 0 }

func (p *pool) hasIdle() bool { return slices.ContainsFunc(p.queues, (*queue).hasIdle) }

// turns is how many turns a task waits in q before it moves to another queue that is that much less
// suitable.
func (q *queue) turns(to *queue, stranger int, c *tuning.Config) float64 {
	return spill.Turns(q.class, to.class, stranger, c.SizeExponent)
}

// spills is the input of package spill.
func (q *queue) spills() spill.Queue {
	return spill.Queue{
		Waiting: q.waiting, Workers: q.serving, Typical: q.load.Mean(q.waiting), Startup: q.pool.startup,
	}
}
