package sizes

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/spill"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// A simResult is the result of simulating a stream.
type simResult struct {
	delays       []time.Duration // of each job, from its arrival to its result
	cost, wasted float64         // worker seconds, multiplied by size class
	runs, again  int             // all runs except training, and those on the largest class after a smaller one
	trained      int             // background runs to learn from
	hedges       float64         // the part of wasted that is due to second concurrent runs
	spilled      int             // jobs that ran on a larger class because the chosen one was busy
}

// A simFarm runs jobs in virtual time.
type simFarm struct {
	policy simPolicy
	now    time.Time
	events simEvents
	queues []*simQueue // ascending
	result simResult
}

// A simQueue is one size class. Negative free means an unlimited number of workers.
type simQueue struct {
	class         uint32
	workers, free int
	waiting       []*simRun
	mean          float64   // recent mean duration of a run in seconds
	open          bool      // see spill.Queue.Worth
	look          time.Time // time at which a waiting job may spill
}

// A simRun is one run of a job.
type simRun struct {
	job     *simJob
	index   int // index of the job
	queue   *simQueue
	attempt simAttempt
	// training: a background run whose job has already ended.
	training bool

	queued  time.Time
	started time.Time
	over    bool
	partner *simRun // the other one of two concurrent runs
}

// simulate runs jobs in order. If bounded, each class has its number of workers in p; otherwise the
// number is unlimited.
func simulate(ctx context.Context, p *sizesParameters, jobs []*simJob, policy simPolicy, bounded bool) simResult {
	f := &simFarm{policy: policy, result: simResult{delays: make([]time.Duration, len(jobs))}}
	units := 0
	for _, c := range p.Classes {
		f.queues = append(f.queues, &simQueue{class: c.Size, workers: c.Workers, free: c.Workers})
		units += c.Workers * int(c.Size)
	}
	if policy.simChooser == alwaysFirst(p.largest()) {
		// The comparison farm has the same total size, but only large workers.
		f.largest().workers = units / int(p.largest())
		f.largest().free = f.largest().workers
	}
	if !bounded {
		for _, q := range f.queues {
			q.free = -1
		}
	}
	for i, j := range jobs {
		f.until(ctx, j.arrives)
		f.now = j.arrives
		f.submit(ctx, i, j)
	}
	f.until(ctx, time.Time{})
	return f.result
}

func (f *simFarm) largest() *simQueue { return f.queues[len(f.queues)-1] }

func (f *simFarm) queue(class uint32) *simQueue {
	return f.queues[slices.IndexFunc(f.queues, func(q *simQueue) bool { return q.class == class })]
}

func (f *simFarm) submit(ctx context.Context, i int, j *simJob) {
	c := sizeclass.Conditions{Now: f.now, CanHedge: true}
	for _, q := range f.queues {
		c.Classes = append(c.Classes, sizeclass.Class{Size: q.class, Wait: q.wait()})
	}
	f.enqueue(&simRun{job: j, index: i, attempt: f.policy.first(ctx, j, c)})
}

// wait estimates how long the next job in a queue may have to wait.
func (q *simQueue) wait() time.Duration {
	if q.free != 0 {
		return 0
	}
	return secondsOf(float64(len(q.waiting)+1) * q.mean / float64(q.workers))
}

func (f *simFarm) enqueue(r *simRun) {
	r.queue = f.queue(r.attempt.Choice().Class)
	r.queued = f.now
	r.queue.waiting = append(r.queue.waiting, r)
	f.dispatch(r.queue)
	f.spill()
}

// dispatch starts all jobs that can start.
func (f *simFarm) dispatch(q *simQueue) {
	for q.free != 0 && len(q.waiting) > 0 {
		r := q.waiting[0]
		q.waiting = q.waiting[1:]
		f.start(r, q)
	}
}

// start runs a job on a worker of a queue.
func (f *simFarm) start(r *simRun, q *simQueue) {
	if q.free > 0 {
		q.free--
	}
	r.queue, r.started = q, f.now
	if r.training {
		f.result.trained++
	} else {
		f.result.runs++
	}
	took, outcome := r.job.took(q.class)
	choice := r.attempt.Choice()
	if took > choice.Timeout {
		took, outcome = choice.Timeout, sizeclass.TimedOut
	}
	heap.Push(&f.events, simEvent{f.now.Add(took), r, outcome})
	if choice.Hedge > 0 && choice.Hedge < took {
		heap.Push(&f.events, simEvent{f.now.Add(choice.Hedge), r, overdue})
	}
}

// overdue is the outcome of a run that continues.
const overdue sizeclass.Outcome = 0

// spill moves waiting jobs to idle workers of larger classes, as the scheduler's core does.
func (f *simFarm) spill() {
	for f.policy.spills > 0 {
		var from, to *simQueue
		most := 0.0
		for _, q := range f.queues {
			larger := f.largerOf(q)
			if larger == nil {
				q.open = q.open && len(q.waiting) > 0
				continue
			}
			turns, waited := spill.Turns(q.class, larger.class, 0, f.policy.spills), f.now.Sub(q.waiting[0].queued)
			q.open = q.spills().Worth(turns, waited, q.open)
			if strain := q.spills().Strain(turns, waited); q.open && strain >= most {
				from, to, most = q, larger, strain
			}
		}
		if from == nil {
			break
		}
		r := from.waiting[0]
		from.waiting = from.waiting[1:]
		r.attempt = r.attempt.moved(to.class)
		f.result.spilled++
		f.start(r, to)
	}
	for _, q := range f.queues {
		if larger := f.largerOf(q); larger != nil && f.policy.spills > 0 {
			after := q.spills().Patience(spill.Turns(q.class, larger.class, 0, f.policy.spills))
			at := q.waiting[0].queued.Add(after)
			if q.look.IsZero() || at.Before(q.look) || !q.look.After(f.now) {
				q.look = at
				heap.Push(&f.events, simEvent{at: at})
			}
		}
	}
}

// largerOf returns the smallest larger class with an idle worker; nil if no job of q may move
// there.
func (f *simFarm) largerOf(q *simQueue) *simQueue {
	i := slices.IndexFunc(f.queues, func(x *simQueue) bool { return x.class > q.class && x.free > 0 })
	if i < 0 || len(q.waiting) == 0 {
		return nil
	}
	return f.queues[i]
}

func (q *simQueue) spills() spill.Queue {
	sum := 0.0
	for _, r := range q.waiting {
		sum += cmp.Or(r.attempt.Choice().Expected.Seconds(), q.mean, spill.Unknown.Seconds())
	}
	return spill.Queue{
		Waiting: len(q.waiting), Workers: q.workers,
		Typical: secondsOf(sum / float64(len(q.waiting))),
	}
}

// until handles all events before t, or all events if t is zero.
func (f *simFarm) until(ctx context.Context, t time.Time) {
	for len(f.events) > 0 && (t.IsZero() || f.events[0].at.Before(t)) {
		e := heap.Pop(&f.events).(simEvent)
		if e.run == nil {
			f.now = e.at
			f.spill()
			continue
		}
		if e.run.over {
			continue
		}
		f.now = e.at
		if e.outcome == overdue {
			f.overdue(ctx, e.run)
		} else {
			f.ended(ctx, e.run, e.outcome)
		}
	}
}

// stop frees the worker of a run and returns how long it ran.
func (f *simFarm) stop(r *simRun) time.Duration {
	r.over = true
	took := f.now.Sub(r.started)
	f.result.cost += float64(r.queue.class) * took.Seconds()
	r.queue.mean += (took.Seconds() - r.queue.mean) / 50
	if r.queue.free >= 0 {
		r.queue.free++
	}
	f.dispatch(r.queue)
	f.spill()
	return took
}

// abandon stops the slower one of two runs.
func (f *simFarm) abandon(r *simRun) {
	took := f.stop(r)
	f.waste(r, took)
	f.result.hedges += float64(r.queue.class) * took.Seconds()
	r.attempt.abandoned()
}

func (f *simFarm) waste(r *simRun, took time.Duration) {
	f.result.wasted += float64(r.queue.class) * took.Seconds()
}

// overdue starts a run on the largest class, in addition to the slow run or instead of it.
func (f *simFarm) overdue(ctx context.Context, r *simRun) {
	if f.largest().free == 0 {
		f.failed(ctx, r, f.stop(r), sizeclass.TimedOut)
		return
	}
	second := &simRun{job: r.job, index: r.index, attempt: r.attempt.overdue(f.largest().class), partner: r}
	r.partner = second
	f.result.again++
	f.enqueue(second)
}

// ended handles a run that ended by itself or at its timeout.
func (f *simFarm) ended(ctx context.Context, r *simRun, outcome sizeclass.Outcome) {
	took := f.stop(r)
	other := r.partner
	if other != nil && other.over {
		other = nil
	}
	if r.training {
		f.waste(r, took)
	}
	switch {
	case outcome == sizeclass.Succeeded:
		if other != nil {
			f.abandon(other)
		}
		if !r.training {
			f.done(r)
		}
		if next := r.attempt.succeeded(ctx, r.job.run(r.queue.class, took)); next != nil {
			f.enqueue(&simRun{job: r.job, index: r.index, attempt: next, training: true})
		}
	case other != nil && r.queue != f.largest():
		f.waste(r, took)
		r.attempt.abandoned()
	default:
		if other != nil {
			f.abandon(other)
		}
		f.failed(ctx, r, took, outcome)
	}
}

// failed runs a job again on the largest class, or ends it.
func (f *simFarm) failed(ctx context.Context, r *simRun, took time.Duration, outcome sizeclass.Outcome) {
	again := r.attempt.failed(ctx, sizeclass.Failure{
		Now: f.now, Outcome: outcome, Run: r.job.run(r.queue.class, took), Largest: f.largest().class,
	})
	switch {
	case again != nil:
		f.waste(r, took)
		f.result.again++
		f.enqueue(&simRun{job: r.job, index: r.index, attempt: again})
	case !r.training:
		f.done(r)
	}
}

func (f *simFarm) done(r *simRun) { f.result.delays[r.index] = f.now.Sub(r.job.arrives) }

// A simEvent is an event of a run. Without a run, it is the time at which a waiting job may spill.
type simEvent struct {
	at      time.Time
	run     *simRun
	outcome sizeclass.Outcome
}

// simEvents is a heap by time.
type simEvents []simEvent

func (e simEvents) Len() int           { return len(e) }
func (e simEvents) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e simEvents) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)        { *e = append(*e, x.(simEvent)) }
func (e *simEvents) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}
