package core

import (
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// calls answers the calls of workers, and notes what is taken from them.
type calls struct {
	*timer.Clock
	cfg *tuning.Config
	// replies, wakes and taken belong to the present event.
	replies *[]event.Reply
	wakes   *[]string
	taken   *[]event.Taken
	// effort is that of the present event.
	effort *sweep.Effort
}

// take notes why the task of a worker is taken from it.
func (c *calls) take(w *worker, why event.Why) {
	if w.task.spec != nil {
		*c.taken = append(*c.taken, event.Taken{Operation: w.task.spec, Worker: w.Key, Why: why})
	}
}

// stop has a worker stop an action as soon as it calls, which it should do now.
func (c *calls) stop(w *worker, a request.Ran) {
	w.stopping = &a
	c.wake(w)
}

// wake has a busy worker call now.
func (c *calls) wake(w *worker) { *c.wakes = append(*c.wakes, w.Key) }

// unwanted makes the worker of a task that no client wants one of the first to yield to queued
// tasks.
func (c *calls) unwanted(w *worker) {
	w.task.run().left = c.Awake()
	q := w.task.worker().queue
	q.unwanted.add(w.task)
	c.claimSpares(q)
}

// goesOn notes that a worker has called and goes on with its task. If no client wants that, the
// worker may have been woken in vain: because another one has got the queued task, and then it is
// woken again for the next one, or because its task may no longer yield, and then that of another
// worker does.
func (c *calls) goesOn(w *worker) {
	r := w.task.run()
	switch {
	case r.worker != w || r.unwanted || w.task.wanted():
	case w.mayYield():
		w.queue.unwanted.add(w.task)
	default:
		c.claim(w.queue, 1)
	}
}

// serves has a worker that takes work again yield to queued tasks if its task runs for no client: while
// it took none, it was passed over.
func (c *calls) serves(w *worker) {
	if w.task == nil || w.task.wanted() || !w.mayYield() {
		return
	}
	if !w.task.run().unwanted {
		w.queue.unwanted.add(w.task)
	}
	c.claimSpares(w.queue)
}

// claimSpares wakes the workers of a queue that run for no client and must yield now, while tasks
// wait.
func (c *calls) claimSpares(q *queue) { c.claim(q, q.waiting) }

// claim does so for some, once for each, as long as they would get a task. What the event has no
// effort for is left to the next one.
func (c *calls) claim(q *queue, most int) (woken int) {
	for ; woken < most && q.waiting > 0; woken++ {
		if c.effort.Left <= 0 {
			c.Timers.Set(&q.unwanted.timer, c.Now)
			break
		}
		w := c.yieldingWorker(q)
		if w == nil {
			break
		}
		c.wake(w)
	}
	return woken
}

// yieldingWorker takes out the first worker of the unwanted runs of a queue that would get a task
// now; nil: there is none. A worker that does not is passed over: the next task may be for it. There
// are never many, as they are of one program, which all queued tasks avoid.
func (c *calls) yieldingWorker(q *queue) *worker {
	s := &q.unwanted
	var avoided *program
	for i := 0; i < len(s.list); {
		c.effort.Spend(1)
		x := s.list[i]
		if !s.has(x) {
			s.take(i)
			continue
		}
		r := x.task.run()
		if !r.worker.mayYield() {
			s.take(i)
			r.unwanted = false
			continue
		}
		if at := r.yields(); at > c.Awake() {
			c.Timers.Set(&s.timer, c.When(at))
			return nil
		}
		if r.worker.program == avoided {
			i++
			continue
		}
		next, looks := r.worker.choose(nil, c.Now)
		c.effort.Spend(looks)
		switch share := r.worker.share(); {
		case next != nil || share.HoldsBack():
			s.take(i)
			r.unwanted = false
			return r.worker
		case looks == 0 && (q.quotas == nil || c.effort.Left <= 0): // nothing may start
			i = len(s.list)
		case looks == 0: // because of maximums, and another one may hold something back
			i++
		default:
			avoided = r.worker.program
			i++
		}
	}
	c.Timers.Stop(&s.timer)
	return nil
}

// run answers a worker's call with the task that the worker must run. If the call reported the end
// of the same action, the worker must first be idle: then a report of the same end is never that of
// the new run.
func (c *calls) run(w *worker) {
	t := w.task
	if last := w.ended.get(); last.action.Key == t.action && !last.unique {
		c.answer(w, event.Reply{Do: event.BeIdle, NextSync: c.Now})
		return
	}
	r := event.Reply{
		Do: event.Execute, NextSync: c.next(w),
		Run: t.spec, Queued: t.queued, Suffix: instance.Suffix(t.spec.Instance, w.pool.Prefix),
	}
	fillSize(&r, t, w)
	c.answer(w, r)
}

// answer ends the wait of a worker's call and sets the time for its next one.
func (c *calls) answer(w *worker, r event.Reply) {
	r.Call, w.call = w.call, 0
	*c.replies = append(*c.replies, r)
	c.Timers.Set(&w.timer, r.NextSync.Add(c.cfg.WorkerSlack))
}

// next is when a worker with a task must call again: soon enough to learn that its task must yield,
// and when a timer of its or another task is due.
func (c *calls) next(w *worker) time.Time {
	return w.queue.quotas.NextCall(c.Now.Add(c.cfg.SyncInterval), w.share())
}

// fillSize adds the size class of the run to a reply to a worker.
func fillSize(r *event.Reply, t *task, w *worker) {
	size := t.spec.Size
	r.SizeClass, r.SizeAttempt = w.queue.size(), 1
	switch {
	case size.Class == 0:
		r.SizeAttempt = 0
	case t.course.largest() || w != t.worker():
		r.SizeAttempt, r.SizeReason = 2, t.because()
	case r.SizeClass == size.Class:
		r.Expected, r.SizeReason = size.Expected, size.Reason
		if t.cutShort(w) {
			r.Timeout = size.Timeout
		}
	case w.pool.hasFor(size.Class):
		r.SizeReason = fmt.Sprintf("waiting for a worker of size class %d costs more than this one", size.Class)
	default:
		r.SizeReason = fmt.Sprintf("size class %d has no worker", size.Class)
	}
}
