package core

import (
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// runs end the runs of tasks: with a result, on another size class, for others, or because a worker
// is gone. It does not know the reports of workers.
type runs struct {
	*timer.Clock
	cfg        *tuning.Config
	operations *operations
	inFlight   *inFlight
	dispatch   *dispatcher
	calls      *calls
	hedges     *hedges
	tally      *view.Tally
	// ended, retries and left are those of the present event.
	ended   *[]event.Ended
	retries *[]event.Retry
	left    *[]event.Status
	// lacks are explanations of the current event, by their subject.
	lacks map[lack]string
}

// A lack is an instance name and the key of a platform that no worker has.
type lack struct{ instance, platform string }

// explain says why no worker can serve an operation. It is computed once for many operations that
// fail in one event, because it looks at all pools.
func (r *runs) explain(spec *request.Operation) string {
	l := lack{spec.Instance, spec.Platform.Key()}
	why, ok := r.lacks[l]
	if !ok {
		r.dispatch.effort.Spend(r.dispatch.pools.Len())
		why = r.dispatch.pools.explain(spec)
		if r.lacks == nil {
			r.lacks = map[lack]string{}
		}
		r.lacks[l] = why
	}
	return why
}

// absent ends a task that has waited long enough in a queue that is away, or moves it.
func (r *runs) absent(q *queue) {
	for q.away && q.line.Len() > 0 && q.absence.ends(q.line.First()) <= r.Awake() && r.dispatch.effort.Spend(endEffort) {
		r.overdue(q.line.First())
	}
	q.absence.await(r.Clock)
}

// conclude ends a task with the report of its worker, or runs it again on the largest size class.
func (r *runs) conclude(w *worker, e ending) {
	t, resp := w.task, e.response
	if t.race() != nil && !r.hedges.decide(w, resp) {
		return
	}
	w.queue.load.Ran(r.Now.Sub(t.started))
	r.dispatch.reaches.touch(w.pool)
	largest, again := t.mispredicted(w, resp)
	if t.spec.Size.Class > 0 {
		*r.ended = append(*r.ended, event.Ended{
			Operation: t.spec, Class: w.queue.size(), Largest: largest, Again: again, Late: t.course.late(), Response: resp,
		})
	}
	if !again {
		if t.course.largest() {
			resp = Annotated(resp, fmt.Sprintf("ran on size class %d: %s", w.queue.class, t.because()))
		}
		if _, failed := saysNothing(codes.Code(resp.GetStatus().GetCode())); failed && t.failedOn() != "" {
			resp = Annotated(resp, t.past.failure)
		}
		r.finish(t, resp)
		return
	}
	r.tally.Outgrown++
	if t.course != overtaken {
		t.course = outgrown
	}
	t.explain(fmt.Sprintf("%s on size class %d", failureOf(e), w.queue.class))
	t.small++
	r.again(t)
}

// elsewhere is how long a task waits for other workers than those that could not run it, while they
// are busy.
const elsewhere = 10 * time.Second

// retry has a task that a worker could not run, for no fault of the action, run once more, on
// another worker if one is free soon. It returns false if no other one takes work, or will when
// State has settled, or if another one could not run it either: the error is for the client.
func (r *runs) retry(w *worker, resp *repb.ExecuteResponse) bool {
	t, p := w.task, w.program
	if t.race() != nil || t.counted() >= r.cfg.MaxAttempts || t.failedOn() != "" && t.failedOn() != p.key {
		return false
	}
	code, message := codes.Code(resp.GetStatus().GetCode()), resp.GetStatus().GetMessage()
	larger := w.pool.largest(func(q *queue) bool { return q.served() && q.admits(t.spec.Instance) })
	switch {
	case p.hasPeers():
	case larger != nil && larger.size() > w.queue.size():
		t.course = outgrown
		t.explain(fmt.Sprintf("ended with %s on size class %d", code, w.queue.class))
	case r.dispatch.pools.besideFor(t, p.key) == nil && !r.dispatch.isSettling():
		return false
	}
	runs := t.pastRuns()
	runs.failed, runs.avoids, runs.until = p.key, true, timer.After(r.dispatch.startsAt(), elsewhere)
	runs.failure = fmt.Sprintf("an earlier run on worker %s ended with %s: %s", machineOf(w), code, message)
	*r.retries = append(*r.retries, event.Retry{
		Taken: event.Taken{Operation: t.spec, Worker: w.Key, Why: event.Failed}, Code: code, Message: message,
	})
	r.tally.Returned++
	r.again(t)
	return true
}

// again queues the task of a worker again, before others: its client has waited already.
func (r *runs) again(t *task) {
	r.dispatch.release(t)
	t.returned = true
	r.operations.changedAll(t)
	r.dispatch.enqueue(t)
}

// machineOf names a worker in a message for people.
func machineOf(w *worker) string {
	machine, _ := names.Machine(w.Key)
	return machine
}

func failureOf(e ending) string {
	resp := e.response
	if e.outOfMemory {
		return "ran out of memory"
	}
	if codes.Code(resp.GetStatus().GetCode()) == codes.DeadlineExceeded {
		return "timed out"
	}
	return fmt.Sprintf("failed with exit code %d", resp.GetResult().GetExitCode())
}

// Annotated returns a response with one more line for people.
func Annotated(resp *repb.ExecuteResponse, line string) *repb.ExecuteResponse {
	resp = proto.CloneOf(resp)
	if resp.Message != "" {
		resp.Message += "\n"
	}
	resp.Message += line
	return resp
}

// failure returns a response that carries an error instead of a result.
func failure(code codes.Code, message string) *repb.ExecuteResponse {
	return &repb.ExecuteResponse{Status: &spb.Status{Code: int32(code), Message: message}}
}

// finish completes the operations of a task, wherever it is.
func (r *runs) finish(t *task, resp *repb.ExecuteResponse) {
	for o := range t.operations.all() {
		r.operations.complete(o, resp)
	}
	r.drop(t)
	for o := range t.operations.all() {
		t.remove(o) // one that is kept does not keep the others
	}
}

// lose takes a task back from a worker that no longer runs it. It goes to the
// front of its queue until its attempts are used up, unless another worker runs it, too.
func (r *runs) lose(w *worker, why event.Why) {
	t := w.task
	r.calls.take(w, why)
	if t.race() != nil {
		r.hedges.leave(w)
		return
	}
	if t.spec == nil {
		r.drop(t)
		return
	}
	if w.duty == away && !r.forget(t) {
		return
	}
	if t.counted() >= r.cfg.MaxAttempts {
		why := "each time the worker was lost or dropped it, last " + machineOf(w)
		if t.failedOn() != "" {
			why = fmt.Sprintf("worker %s was lost or dropped it; %s", machineOf(w), t.past.failure)
		}
		r.finish(t, failure(codes.Internal, fmt.Sprintf(
			"action %s was given up after %d attempts: %s", t.action, t.counted(), why)))
		return
	}
	r.tally.Returned++
	r.again(t)
}

// preempt makes a worker stop its task and run a task of the instance for which it is stopped. The
// stopped task is queued again, before others of its priority in its branch. Its stopped run does
// not count as an attempt.
func (r *runs) preempt(w *worker) {
	l, why := w.task.share.Preempt(), event.ForMinimum
	if l == nil {
		why = event.OverMaximum
	}
	r.suspend(w, why, func() bool { return r.dispatch.nextFor(w, l) })
}

// suspend makes a worker that calls stop its task, which is queued again, and run the task that
// next assigns.
func (r *runs) suspend(w *worker, why event.Why, next func() bool) {
	t := w.task
	r.calls.take(w, why)
	ran := t.ran()
	w.stopping = &ran
	r.dispatch.release(t)
	t.preempted++
	t.returned = true
	r.operations.changedAll(t)
	if !next() {
		w.duty = yielding
		r.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: r.Now})
	}
	r.dispatch.enqueue(t)
}

// stop drops a task that no client wants. Its worker is woken to get the message.
func (r *runs) stop(t *task, why event.Why) {
	if w := t.worker(); w != nil {
		r.calls.take(w, why)
		r.calls.stop(w, t.ran())
	}
	if second := t.race(); second != nil {
		r.calls.take(second.worker, why)
	}
	r.drop(t)
}

// drop removes a task from its location and from everything else.
func (r *runs) drop(t *task) {
	if t.worker() != nil {
		r.dispatch.release(t)
	} else {
		r.dispatch.dequeue(t)
	}
	t.move(nil)
	r.Timers.Stop(&t.timer)
	r.inFlight.remove(t)
}

// due handles the timer of a task: one that waits and has avoided workers until now may go there.
func (r *runs) due(t *task) {
	if t.queue() != nil {
		r.dispatch.dequeue(t)
		t.past.avoids = false
		r.dispatch.enqueue(t)
		return
	}
	r.overdue(t)
}

// overdue ends a task that no worker could serve, or that no client asked for, or starts one again
// that takes too long.
func (r *runs) overdue(t *task) {
	if t.worker() != nil && t.spec != nil {
		r.hedges.start(t)
		return
	}
	if t.worker() != nil {
		r.stop(t, event.Abandoned)
		return
	}
	var waited time.Duration
	var why string
	q := t.queue()
	switch {
	case q == nil && r.dispatch.pools.queueFor(t) != nil: // the sweep of the unmatched has not come to it
		r.dispatch.rematch(t)
		return
	// meanwhile there was a worker with all its properties
	case q == nil && r.Awake() < r.dispatch.pools.patience(t, r.dispatch.begun):
		r.Timers.Set(&t.timer, r.When(r.dispatch.pools.patience(t, r.dispatch.begun)))
		return
	case q != nil && r.dispatch.giveUp(t):
		return
	case q != nil && q.drained > 0:
		waited, why = q.patience(r.cfg),
			fmt.Sprintf("all workers of size class %d of %s are drained", q.class, t.spec.Platform)
	case q != nil:
		waited, why = q.pool.patience,
			fmt.Sprintf("size class %d of %s has none, nor has another one", q.class, t.spec.Platform)
	default:
		waited, why = (r.Awake() - t.Since()).Round(time.Second), r.explain(t.spec)
	}
	r.finish(t, failure(codes.FailedPrecondition,
		fmt.Sprintf("action %s found no worker in %s: %s", t.action, waited, why)))
}

// forget drops the restored operations of a task: its worker has not come back with it. It reports
// whether others are left, for which the task must run.
func (r *runs) forget(t *task) bool {
	end := failure(codes.Unavailable, fmt.Sprintf(
		"how it ended is not known: after a restart of the scheduler, worker %s did not come back with it", machineOf(t.worker())))
	for o := range t.operations.all() {
		if !o.restored {
			continue
		}
		*r.left = append(*r.left, r.operations.lastOf(o, end))
		t.detach(o)
		t.remove(o)
		r.operations.drop(o)
		r.Timers.Stop(&o.timer)
		o.task = nil
		r.operations.changed(o)
	}
	if t.operations.empty() {
		r.drop(t)
		return false
	}
	first := t.operations.first
	t.spec, t.queued = first.spec, first.queued
	return true
}
