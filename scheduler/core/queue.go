package core

import (
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/alike"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/spill"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A queue has the tasks of one size class of a pool and the workers that are free to run them: a
// kind of workers in the pool's tree. Invariants between events: no task waits or no worker is
// idle; no task waits unless the queue is open or declared.
type queue struct {
	pool  *pool
	class uint32
	name  *event.QueueName // it does not change
	// asked are the platforms of the tasks in the queue, by key.
	asked map[string]*asked
	// line are the tasks in the queue. waiting counts those that are not parked; load is how long
	// they will take.
	line    sweep.Line[*task]
	waiting int
	load    spill.Load
	// parked are those that no client waits for.
	parked map[*task]struct{}
	// unwanted are runs that no client waits for.
	unwanted unwantedRuns
	// workers counts all workers; serving those that take work, resting those that prefer to be
	// idle and are not drained, drained those that operators have drained, suspended those whose
	// actions failed. At least one serves while one is suspended.
	workers, serving, resting, drained, suspended int
	// programs are the workers by their program; ill counts failing programs; alike has groups of
	// them.
	programs map[string]*program
	ill      int
	alike    alike.Groups[*program] // by program.circumstances
	// declared: it stays when it has no worker. It is away while it is not staffed, but declared or
	// drained.
	declared, away bool
	absence        absence
	// impatient counts the tasks that do not wait for it while it is away.
	impatient int
	// quotas is the queue's state in its cohort; nil if it is in none.
	quotas *preemption.Queue
	// rest runs while no worker serves and a resting worker may serve again.
	rest timer.Timer
	// reach are the other pools where some of its tasks may run; overflow is the state of tasks
	// that move to them, and to larger workers.
	reach    reach
	overflow overflow
}

// An overflow is the state of a queue's spills to workers of other queues; see overflows.
type overflow struct {
	queue *queue
	// open: spilling was worth the cost, and the queue has not become short since.
	open bool
	// marked: it is in reaches.marked.
	marked bool
	// timer is when the next task will have waited long enough to be worth the worker that is idle
	// now.
	timer timer.Timer
}

func (q *queue) served() bool { return q.serving > 0 }

// staffed reports whether a worker serves the queue, or may at any moment: a worker that runs one
// action and fetches the inputs of the next has positions that need no third one for now.
func (q *queue) staffed() bool { return q.serving > 0 || q.suspended > 0 || q.rest.IsSet() }

// open reports whether tasks may wait here: it is staffed, or would be if operators had not drained
// its workers.
func (q *queue) open() bool { return q.staffed() || q.drained > 0 }

// An absence is the time in which a queue is away. Each task waits for so long from its beginning,
// or from when it came.
type absence struct {
	queue *queue
	since time.Duration // by Clock.Awake
	// patience is for how long.
	patience time.Duration
	// timer is when the first task has waited for long enough, or earlier.
	timer timer.Timer
}

// ends is until when a task waits, by Clock.Awake.
func (a *absence) ends(t *task) time.Duration {
	return timer.After(max(t.Since(), a.since), a.patience)
}

// await schedules a look at the first task of a queue that is away, for when it has waited long
// enough.
func (a *absence) await(c *timer.Clock) {
	if q := a.queue; q.away && q.line.Len() > 0 {
		c.Timers.Set(&a.timer, c.When(a.ends(q.line.First())))
	} else {
		c.Timers.Stop(&a.timer)
	}
}

// patience is how long a task may wait while a queue is away, for its workers to come or to be
// undrained.
func (q *queue) patience(c *tuning.Config) time.Duration {
	if q.drained > 0 {
		return max(c.DrainGrace, q.pool.patience)
	}
	return q.pool.patience
}

// cost is the cost of a running task of the queue in its pool's tree.
func (q *queue) cost() int64 { return int64(q.size()) }

// size is the size class by which decisions are made: that of workers without one is 1.
func (q *queue) size() uint32 { return max(q.class, 1) }

// joined and left count a task that waits in the queue.
func (q *queue) joined(t *task) {
	q.waiting++
	q.load.Add(t.expected(q.size()), 1)
}

func (q *queue) left(t *task) {
	q.waiting--
	q.load.Add(t.expected(q.size()), -1)
}

// park counts a queued task that no client waits for.
func (q *queue) park(t *task) {
	if q.parked == nil {
		q.parked = map[*task]struct{}{}
	}
	q.parked[t] = struct{}{}
}

// unwantedRuns are the runs of a queue that no client waits for, and whose workers have not been
// woken to yield.
type unwantedRuns struct {
	queue *queue
	// list has them in the order in which their last clients stopped waiting; some may have ended,
	// or be wanted again.
	list []unwantedRun
	// timer is when the first of them yields while others wait, or now, if there was too much to
	// do.
	timer timer.Timer
}

// An unwantedRun is a task whose run was left at a time of Clock.Awake; see run.left.
type unwantedRun struct {
	task *task
	left time.Duration
}

// add records that a running task has no waiting client, and may yield.
func (s *unwantedRuns) add(t *task) {
	if len(s.list) > 2*s.queue.workers {
		s.list = slices.DeleteFunc(s.list, func(x unwantedRun) bool { return !s.has(x) })
	}
	r := t.run()
	r.unwanted = true
	at := len(s.list)
	for at > 0 && s.list[at-1].left > r.left { // one whose worker was woken in vain
		at--
	}
	s.list = slices.Insert(s.list, at, unwantedRun{t, r.left})
	s.queue.quotas.Expose()
}

// has reports whether a run is still unwanted.
func (s *unwantedRuns) has(x unwantedRun) bool {
	r := x.task.run()
	return r != nil && r.unwanted && r.left == x.left && r.worker.queue == s.queue && !x.task.wanted()
}

// take removes the one at an index, which is near the first.
func (s *unwantedRuns) take(at int) {
	copy(s.list[1:], s.list[:at])
	s.list[0] = unwantedRun{}
	s.list = s.list[1:]
}

// head returns the next task for a worker that belongs to no branch; nil if no waiting task may
// run.
func (q *queue) head(now time.Time) *task {
	it := q.pool.tree.Next(&fair.Worker{Kind: q.class}, now)
	if it == nil {
		return nil
	}
	return it.Owner.(*task)
}

// tasks returns the tasks in the queue, the oldest first.
func (q *queue) tasks() []*task { return slices.SortedFunc(slices.Values(q.line.All()), byAge) }

// expected reports whether actions may choose a queue: it has workers, or expects some.
func (q *queue) expected() bool { return q.served() || q.declared }

// wait is how long a further task is expected to wait for a worker.
func (q *queue) wait() time.Duration {
	switch {
	case q.away:
		return q.pool.startup
	case q.pool.tree.Idle(q.class) > 0:
		return 0
	}
	return q.load.Wait(q.serving)
}

// sooner reports whether a further task is expected to wait for less long than in another queue.
func (q *queue) sooner(other *queue) bool {
	idle := q.pool.tree.Idle(q.class) > 0
	if idle != (other.pool.tree.Idle(other.class) > 0) {
		return idle
	}
	return q.wait() < other.wait()
}

// A reach is the pools where else something of a queue may run: those of the same instance name
// prefix that fit one of the platforms that it is asked for. There may be some more.
type reach struct {
	// pools are in the order of their offers.
	pools []beside
	// known is one more than offer.Index.Changes when they were found; 0: they never were.
	known int
	// roams: the queue is in reaches.roaming.
	roams bool
}

// A beside is another pool. equals: to something of the queue it is no stranger; see
// queue.isAtHome. That may have gone.
type beside struct {
	*pool
	equals bool
}

func (r *reach) find(p *pool) (at int, found bool) {
	return slices.BinarySearchFunc(r.pools, p, func(a beside, b *pool) int { return offer.Compare(a.Offer, b.Offer) })
}

func (r *reach) has(p *pool) bool {
	at, found := r.find(p)
	return found && r.pools[at].pool == p
}

// asked counts the tasks of a queue that ask for one platform.
type asked struct {
	platform request.Platform
	tasks    int
}

// ask counts a task that asks for a platform; first: it is the only one.
func (q *queue) ask(p request.Platform) (first bool) {
	a := q.asked[p.Key()]
	if first = a == nil; first {
		a = &asked{platform: p}
		if q.asked == nil {
			q.asked = map[string]*asked{}
		}
		q.asked[p.Key()] = a
	}
	a.tasks++
	return first
}

func (q *queue) unask(p request.Platform) {
	a := q.asked[p.Key()]
	if a.tasks--; a.tasks == 0 {
		delete(q.asked, p.Key())
	}
}

// admits reports whether an instance may ever run something on a queue's workers.
func (q *queue) admits(instance string) bool {
	return q.quotas == nil || q.quotas.Admits(levels.Bounded(instance))
}

// mayRunMore reports whether an instance may have more running.
func (q *queue) mayRunMore(instance string) bool {
	return q.quotas == nil || q.quotas.Grade(instance) != fair.Wait
}
