package core

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A dispatcher has the queued tasks, and gives them to workers. It does not know the events of
// workers and clients: State does.
type dispatcher struct {
	*timer.Clock
	cfg        *tuning.Config
	operations *operations
	calls      *calls

	pools *pools
	// unmatched are the tasks that no worker can serve, in order. Between events
	// no queue matches them.
	unmatched sweep.Line[*task]
	// queued and executing count tasks; queued includes unmatched ones.
	queued, executing int
	// reserved are the programs of which this event has changed how much they may have.
	reserved []*program
	// reaches know the other pools where queued tasks may run, and when to look again.
	reaches *reaches
	// sweeps go through the tasks that may belong elsewhere; effort is the remaining effort of the
	// event.
	sweeps sweep.Passes[*task]
	effort sweep.Effort
	// settle runs from the first event until actions may be given to workers, which is when
	// Clock.Awake begins.
	settle timer.Timer
	begun  time.Duration
}

func newDispatcher(c *timer.Clock, cfg *tuning.Config, ops *operations, calls *calls) *dispatcher {
	d := &dispatcher{Clock: c, cfg: cfg, operations: ops, calls: calls, pools: newPools(c, cfg)}
	d.reaches = &reaches{pools: d.pools, effort: &d.effort}
	d.settle.Owner, calls.effort = d, &d.effort
	return d
}

func (d *dispatcher) isSettling() bool { return d.settle.IsSet() }

// startsAt is when workers get tasks, by Clock.Awake: now, or when State has settled.
func (d *dispatcher) startsAt() time.Duration {
	if d.isSettling() {
		return timer.After(d.Awake(), d.Timers.When(&d.settle).Sub(d.Now))
	}
	return d.Awake()
}

// enqueue puts a task that is nowhere into a queue, which gives it to the
// nearest worker if one is idle, or among the unmatched.
func (d *dispatcher) enqueue(t *task) {
	d.queued++
	q := d.pools.queueFor(t)
	if q == nil {
		t.move(nil)
		t.at = unmatched{}
		d.unmatched.Push(t, d.Awake())
		d.Timers.Set(&t.timer, d.When(d.pools.patience(t, d.begun)))
		return
	}
	d.put(t, q)
}

// put puts a task that is nowhere, and counted, into a queue.
func (d *dispatcher) put(t *task, q *queue) {
	t.move(q.pool)
	t.at = q
	if q.ask(t.spec.Platform) {
		d.reaches.add(q, t.spec.Platform)
	}
	q.line.Push(t, d.Awake())
	if t.impatient {
		q.impatient++
	}
	if t.avoids() {
		d.Timers.Set(&t.timer, d.When(t.past.until))
	}
	if q.line.Len() == 1 {
		q.absence.await(d.Clock)
	}
	tree := q.pool.tree
	if !t.wanted() {
		q.park(t)
		tree.Enqueue(&t.item, q.class, t.returned)
		return
	}
	q.joined(t)
	d.reaches.roam(q)
	d.reaches.touch(q.pool)
	if q.quotas != nil {
		q.quotas.Enter(t.quotaShare())
	}
	tree.Enqueue(&t.item, q.class, t.returned)
	if idle := q.willing(t); idle == nil || !d.next(idle) { // because of a maximum
		d.calls.claim(q, 1)
	}
	if q.hasTakers() {
		q.quotas.Expose()
	}
}

// isPreempted reports whether a worker that calls must stop its task, because of quotas. It need
// not if all that waits of the instance for which it would be stopped avoids it.
func (d *dispatcher) isPreempted(w *worker) bool {
	if d.isSettling() || !w.task.share.IsPreempted() {
		return false
	}
	l := w.claim()
	if l == nil {
		return true
	}
	t, looks := w.choose(l, d.Now)
	d.effort.Spend(looks)
	return t != nil || looks == 0
}

// givesWay reports whether a worker that calls must stop its task, which no client wants, because
// it would get another one then. A task whose client has only just gone is not stopped.
func (d *dispatcher) givesWay(w *worker) bool {
	if w.task.wanted() || !w.mayYield() || d.isSettling() || w.task.run().yields() > d.Awake() {
		return false
	}
	t, looks := w.choose(nil, d.Now)
	d.effort.Spend(looks)
	return t != nil || w.share().HoldsBack()
}

// unqueue removes a task from the counters of its queue.
func (d *dispatcher) unqueue(q *queue, t *task) {
	if q.line.Remove(t); q.line.Len() == 0 {
		d.Timers.Stop(&q.absence.timer)
	}
	q.unask(t.spec.Platform)
	if t.impatient {
		q.impatient--
	}
	if _, parked := q.parked[t]; parked {
		delete(q.parked, t)
		return
	}
	q.left(t)
	d.reaches.touch(q.pool)
	t.share.Leave()
}

// dequeue removes a task from where it waits.
func (d *dispatcher) dequeue(t *task) {
	d.queued--
	d.Timers.Stop(&t.timer)
	if q := t.queue(); q != nil {
		d.unqueue(q, t)
		q.pool.tree.Dequeue(&t.item)
		t.at = nil
		return
	}
	d.unmatched.Remove(t)
	t.at = nil
}

// rematch finds a new queue for a task that waits.
func (d *dispatcher) rematch(t *task) {
	d.dequeue(t)
	d.enqueue(t)
}

// giveUp has a task that waited for the first worker of a declared class, or for drained ones, take
// another class that has workers. It is false if there is none.
func (d *dispatcher) giveUp(t *task) bool {
	counted := t.impatient
	t.impatient = true
	q := d.pools.queueFor(t)
	t.impatient = counted
	if q == nil || q.away {
		return false
	}
	d.dequeue(t)
	t.impatient = true
	d.enqueue(t)
	return true
}

// assign makes a free worker, whose call waits for an answer, run a queued task.
func (d *dispatcher) assign(t *task, w *worker) {
	d.hand(t, w)
	d.calls.run(w)
	d.tries(w)
}

// hand moves a waiting task to a worker.
func (d *dispatcher) hand(t *task, w *worker) {
	w.unidle()
	if q := t.queue(); q != nil && t.pool == w.pool {
		// It leaves the queue by its start, which is its turn.
		d.queued--
		d.unqueue(q, t)
		t.at = nil
		d.Timers.Stop(&t.timer)
	} else {
		d.dequeue(t)
		t.move(w.pool)
	}
	d.executing++
	t.attempts++
	t.begin(w, d.Now)
	w.task, w.duty = t, assigned
	t.charge()
	w.pool.tree.Start(&t.item, &w.entry, d.Now, w.queue.cost())
	if !t.course.largest() {
		t.course = asChosen
		if t.mayHedge() {
			t.course = hedged
		}
	}
	d.operations.changedAll(t)
}

// release takes a task from its worker and leaves it nowhere. If another worker runs it, too, that
// one is told to stop.
func (d *dispatcher) release(t *task) {
	d.executing--
	t.share.Discharge()
	d.Timers.Stop(&t.timer)
	t.pool.tree.Finish(&t.item)
	if r := t.race(); r != nil {
		r.worker.free()
		d.calls.stop(r.worker, t.ran())
	}
	t.worker().free()
	t.at = nil
}

// next assigns the next task for a worker. It returns false if the worker must stay idle.
func (d *dispatcher) next(w *worker) bool { return d.nextOf(w, nil) }

// nextFor assigns a worker that was to be free for a line, nil for none, the task that is next
// there.
func (d *dispatcher) nextFor(w *worker, l *preemption.Line) bool {
	return l != nil && l.Short() && d.nextOf(w, l)
}

// nextOf assigns the next task of a line, nil for all, to a worker. It returns false if there is
// none.
func (d *dispatcher) nextOf(w *worker, l *preemption.Line) bool {
	if w.takes != Serving || d.isSettling() {
		return false
	}
	t, looks := w.choose(l, d.Now)
	if d.effort.Spend(looks); t != nil {
		d.assign(t, w)
	}
	return t != nil
}

// offer gives a worker whose call is held its next task, or makes it wait for one.
func (d *dispatcher) offer(w *worker) {
	if !d.next(w) && w.takes == Serving && !d.isSettling() {
		w.idle()
		w.queue.quotas.Expose()
		d.reaches.touch(w.pool)
	}
}

// offerStirred gives tasks that quotas now allow to idle workers, and wakes workers that run
// something for nobody.
func (d *dispatcher) offerStirred() {
	for _, c := range d.pools.cohorts {
		if c.Eased() {
			d.reaches.tellOthers(c)
		}
		for d.effort.Left > 0 {
			l := c.Stirred()
			if l == nil {
				break
			}
			d.effort.Spend(1)
			if q := l.Queue().Owner.(*queue); d.offerIdle(q) {
				woken := d.calls.claim(q, l.Startable())
				l.Seen(woken, q.hasTakers())
				if q.canSpill() {
					d.reaches.mark(q)
				}
			}
		}
	}
}

// offerIdle gives tasks that may run now to idle workers of a queue. It returns false if the event
// has no effort left.
func (d *dispatcher) offerIdle(q *queue) bool {
	for q.waiting > 0 {
		t := q.head(d.Now)
		if t == nil {
			break
		}
		idle := q.willing(t)
		if idle == nil {
			avoided := q.avoidedBy(t) // others may go there
			if len(avoided) == 0 {
				break
			}
			idle = avoided[0]
		}
		if !d.next(idle) {
			break
		}
		if !d.effort.Spend(endEffort) {
			return false
		}
	}
	return true
}
