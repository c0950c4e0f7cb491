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

// A simPolicy decides where jobs run: by an Analyzer, or always on one class first.
type simPolicy struct {
	analyzer *sizeclass.Analyzer
	first    uint32
	// spills is the exponent for spilling to idle workers of larger classes; 0: no spilling.
	spills float64
}

// A simResult is the result of a stream.
type simResult struct {
	delays       []time.Duration // of each job, from its arrival to its result
	cost, wasted float64         // seconds of workers times their classes
	runs, again  int             // all, and those on the largest class after a smaller one
	spilled      int             // those that should wait for a smaller class
}

// A simFarm runs jobs in virtual time.
type simFarm struct {
	p      *sizesParameters
	policy simPolicy
	now    time.Time
	events simEvents
	queues []*simQueue // ascending
	result simResult
}

// A simQueue is one size class. It has workers without number if free is negative.
type simQueue struct {
	class         uint32
	workers, free int
	waiting       []*simRun
	mean          float64   // seconds of a run, of late
	open          bool      // see spill.Queue.Worth
	look          time.Time // when a job will have waited for long
}

// A simRun is one run of a job.
type simRun struct {
	job     *simJob
	index   int // of the job
	queue   *simQueue
	choice  sizeclass.Choice
	learner *sizeclass.Learner // nil if there is no analyzer

	queued  time.Time
	started time.Time
	over    bool
	partner *simRun // the other one of two at once
}

// simulate runs jobs in order. Each class in p has the given number of workers, or unlimited ones.
func simulate(ctx context.Context, p *sizesParameters, jobs []*simJob, policy simPolicy, bounded bool) simResult {
	f := &simFarm{p: p, policy: policy, result: simResult{delays: make([]time.Duration, len(jobs))}}
	units := 0
	for _, c := range p.Classes {
		f.queues = append(f.queues, &simQueue{class: c.Size, workers: c.Workers, free: c.Workers})
		units += c.Workers * int(c.Size)
	}
	if policy.first == p.largest() {
		// Its farm is as large, but of large workers only.
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
	r := &simRun{job: j, index: i, choice: sizeclass.Choice{Class: f.policy.first, Timeout: j.action.Timeout}}
	if f.policy.analyzer != nil {
		c := sizeclass.Conditions{Now: f.now, CanHedge: true}
		for _, q := range f.queues {
			c.Classes = append(c.Classes, sizeclass.Class{Size: q.class, Wait: q.wait()})
		}
		r.choice, r.learner = f.policy.analyzer.Analyze(ctx, j.action).Select(c)
	}
	f.enqueue(r)
}

// wait is how long the next job in a queue may have to wait.
func (q *simQueue) wait() time.Duration {
	if q.free != 0 {
		return 0
	}
	return secondsOf(float64(len(q.waiting)+1) * q.mean / float64(q.workers))
}

func (f *simFarm) enqueue(r *simRun) {
	r.queue = f.queue(r.choice.Class)
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

// start has a worker of a queue run a job.
func (f *simFarm) start(r *simRun, q *simQueue) {
	if q.free > 0 {
		q.free--
	}
	r.queue, r.started = q, f.now
	f.result.runs++
	took, outcome := r.job.took(f.p, q.class)
	if took > r.choice.Timeout {
		took, outcome = r.choice.Timeout, sizeclass.TimedOut
	}
	heap.Push(&f.events, simEvent{f.now.Add(took), r, outcome})
	if r.choice.Hedge > 0 && r.choice.Hedge < took {
		heap.Push(&f.events, simEvent{f.now.Add(r.choice.Hedge), r, overdue})
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
		if r.learner != nil {
			r.learner = r.learner.Moved(to.class)
			r.choice = r.learner.Choice()
		}
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

// largerOf returns the smallest larger class with an idle worker; nil if nothing waits for one.
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
		sum += cmp.Or(r.choice.Expected.Seconds(), q.mean, spill.Unknown.Seconds())
	}
	return spill.Queue{
		Waiting: len(q.waiting), Workers: q.workers,
		Typical: secondsOf(sum / float64(len(q.waiting))),
	}
}

// until handles all events before a time, all at all if it is zero.
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
			f.overdue(e.run)
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

// abandon stops a run for nothing.
func (f *simFarm) abandon(r *simRun) {
	f.waste(r, f.stop(r))
	r.learner.Abandoned()
}

func (f *simFarm) waste(r *simRun, took time.Duration) {
	f.result.wasted += float64(r.queue.class) * took.Seconds()
}

// overdue starts a run on the largest class, in addition to the slow one or instead of it.
func (f *simFarm) overdue(r *simRun) {
	if f.largest().free == 0 {
		f.failed(r, f.stop(r), sizeclass.TimedOut)
		return
	}
	learner := r.learner.Overdue(f.largest().class)
	second := &simRun{job: r.job, index: r.index, learner: learner, choice: learner.Choice(), partner: r}
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
	switch {
	case outcome == sizeclass.Succeeded:
		if other != nil {
			f.abandon(other)
		}
		f.done(r)
		if r.learner != nil {
			f.policy.analyzer.Learn(ctx, r.learner.Succeeded(r.job.run(f.p, r.queue.class, took)))
		}
	case other != nil && r.queue != f.largest():
		f.waste(r, took)
		r.learner.Abandoned()
	default:
		if other != nil {
			f.abandon(other)
		}
		if lesson := f.failed(r, took, outcome); lesson != nil {
			f.policy.analyzer.Learn(ctx, lesson)
		}
	}
}

// failed runs a job again on the largest class, or ends it.
func (f *simFarm) failed(r *simRun, took time.Duration, outcome sizeclass.Outcome) *sizeclass.Lesson {
	again := &simRun{job: r.job, index: r.index, choice: sizeclass.Choice{Class: f.largest().class, Timeout: r.job.action.Timeout}}
	switch {
	case r.learner != nil:
		v := r.learner.Failed(sizeclass.Failure{
			Now: f.now, Outcome: outcome, Run: r.job.run(f.p, r.queue.class, took), Largest: f.largest().class,
		})
		if v.Retry == nil {
			f.done(r)
			return v.Lesson
		}
		again.learner, again.choice = v.Retry, v.Retry.Choice()
	case r.queue == f.largest():
		f.done(r)
		return nil
	}
	f.waste(r, took)
	f.result.again++
	f.enqueue(again)
	return nil
}

func (f *simFarm) done(r *simRun) { f.result.delays[r.index] = f.now.Sub(r.job.arrives) }

// A simEvent is something that happens to a run; without one, something that waits has waited for
// long.
type simEvent struct {
	at      time.Time
	run     *simRun
	outcome sizeclass.Outcome
}

// simEvents are a heap by time.
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
