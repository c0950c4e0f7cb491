package core

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/roster"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// A worker is one identity that calls Synchronize. It runs at most one task.
//
// Each call reads most of it, mostly from memory that is in no cache: so it is small, what each call
// reads is together, and no call writes more than it must.
type worker struct {
	roster.Member
	// boot and address are from its last Report.
	boot, address string

	pool  *pool
	queue *queue
	task  *task
	// call is the one that waits for an answer, as event.Report.Call; 0: none does.
	call uint64
	// takes is whether it takes work.
	takes Availability
	// duty is what State expects of it, with task; stage is the stage that it last reported.
	duty  duty
	stage event.Stage
	// stopping is an action that no client wants and that it may still run; nil: none.
	stopping *request.Ran
	// program are the workers that share its process.
	program *program
	// shunned is until when it gets nothing, because it never confirmed its last assignment.
	shunned time.Time
	// timer is the end of the hold, or else of the worker.
	timer timer.Timer
	// entry is its place in the pool's tree, where it waits while it is idle. A call is also held,
	// without an entry, while the worker is drained or State settles.
	entry fair.Worker
	// run is the location of its task, unless that is its second run.
	run run
	// ended is its last report, if that was an end.
	ended lastEnd
	// twin is the last process that called as the same worker and was refused; nil: none did.
	twin *twin
	sweep.Link[*worker]
}

// A twin is another process that called as a worker, from an address, and when.
type twin struct {
	address string
	refused time.Time
}

// An Availability says whether a worker takes work.
type Availability uint8

const (
	// Unreported: it has not reported yet, or is about to be removed.
	Unreported Availability = iota
	// Serving: it takes work.
	Serving
	// Resting: it prefers to be idle, and may take work again.
	Resting
	// Drained: an operator has drained it.
	Drained
	// DrainedResting: an operator has drained it, and it prefers to be idle.
	DrainedResting
	// Suspended: its program gets no action, or no further one.
	Suspended
)

// isDrained reports whether an operator has drained it.
func (a Availability) isDrained() bool { return a == Drained || a == DrainedResting }

// prefersIdle reports whether it has said that it wants no work.
func (a Availability) prefersIdle() bool { return a == Resting || a == DrainedResting }

// A duty is what State expects of a worker.
type duty uint8

const (
	// free: nothing; it has no task.
	free duty = iota
	// yielding: to stop its action for others; the action is queued again, and the worker has
	// nothing else.
	yielding
	// assigned: to run its task, of which it may not have learned.
	assigned
	// confirmed: to run its task, as it has reported.
	confirmed
	// away: to come back, with its task if it has one. It has not called yet, but had an action
	// before; see Restore.
	away
)

// busy returns the action of a worker: its task, or one that it has not stopped yet; none if it is
// free.
func (w *worker) busy() request.Key {
	if w.task != nil {
		return w.task.action
	}
	return w.stops().Key
}

// stops returns the action that a worker may still run and that no client wants; the zero one if
// there is none.
func (w *worker) stops() request.Ran {
	if w.stopping == nil {
		return request.Ran{}
	}
	return *w.stopping
}

// ran returns what a report is about. If the worker does not name an instance name, its action is
// the one that it is known to have, or has reported before in the same words.
func (w *worker) ran(r *event.Report) request.Ran {
	a := request.Ran{Key: request.KeyOf(r.Action), Instance: r.Instance, Named: r.Named}
	if a.Named || a.Key == (request.Key{}) {
		return a
	}
	switch {
	case w.repeats(r):
		return w.ended.of.action
	case w.task != nil && w.task.action == a.Key:
		return w.task.ran()
	case w.stops().Key == a.Key:
		return w.stops()
	}
	return a
}

// repeats reports whether a report is the last end once more, as the answer was lost.
func (w *worker) repeats(r *event.Report) bool {
	return r.Doing == event.Completed && w.ended.get().action.Key == request.KeyOf(r.Action) &&
		proto.Equal(w.ended.get().response, r.Response)
}

// free takes its task from a worker.
func (w *worker) free() { w.task, w.duty = nil, free }

// An ending is a worker's report with Completed.
type ending struct {
	action      request.Ran
	response    *repb.ExecuteResponse
	outOfMemory bool
	// unique: no other run ends in the same words. The results of Forerunner's workers, which name
	// the instance, have the time of their end.
	unique bool
}

// endingOf returns what a report with Completed is about, where ran is the action.
func endingOf(ran request.Ran, r *event.Report) ending {
	e := ending{action: ran, response: r.Response, outOfMemory: r.OutOfMemory}
	e.unique = r.Named && r.Response.GetResult().GetExecutionMetadata().GetWorkerCompletedTimestamp() != nil
	return e
}

// A lastEnd is the last report of a worker, if that was an end. The zero one: it was none.
type lastEnd struct {
	// of is the end without the response. A worker makes one, and uses it for all that follow.
	of *ending
	// response is nil unless isLast.
	response *repb.ExecuteResponse
	isLast   bool
}

// get returns the end, the zero one if the worker has reported anything else since.
func (l *lastEnd) get() ending {
	if !l.isLast {
		return ending{}
	}
	e := *l.of
	e.response = l.response
	return e
}

// put records an end that the worker reports.
func (l *lastEnd) put(e ending) {
	if l.of == nil {
		l.of = &ending{}
	}
	l.response, l.isLast = e.response, true
	e.response = nil
	*l.of = e
}

// forget says that the worker has reported something else. The response is kept no longer.
func (l *lastEnd) forget() {
	if l.isLast {
		l.response, l.isLast = nil, false
	}
}

// isHeld reports whether the call of a worker is held: it waits for an answer.
func (w *worker) isHeld() bool { return w.call != 0 }

// unidle takes a worker from the idle ones, if it is there.
func (w *worker) unidle() {
	if w.entry.Waits() {
		*w.pool.idling--
		w.pool.tree.Unwait(&w.entry)
	}
}

// idle makes a worker wait for a task.
func (w *worker) idle() {
	*w.pool.idling++
	w.pool.tree.Wait(&w.entry)
}

// spared reports whether the task of a worker must not be stopped for others.
func (w *worker) spared() bool {
	return w.stage == event.Uploading || w.takes != Serving || w.duty == away
}

// condition returns the condition of this worker alone.
func (w *worker) condition() view.Condition {
	serves := !w.takes.isDrained() && w.takes != Resting
	switch busy := w.busy() != (request.Key{}); {
	case w.duty == away:
		return view.IsAway
	case busy && serves:
		return view.IsExecuting
	case busy:
		return view.IsDraining
	case w.takes.isDrained():
		return view.IsDrained
	case w.takes == Resting:
		return view.IsResting
	case w.takes == Suspended:
		return view.IsSuspended
	}
	return view.IsIdle
}

// view returns the state of a worker alone.
func (w *worker) view() view.Position {
	v := view.Position{ID: w.ID, Condition: w.condition(), Action: w.busy().String()}
	if w.task != nil {
		v.Since = w.task.started
	}
	return v
}

// share returns the share of a worker's task in quotas; nil if there is none.
func (w *worker) share() *preemption.Share {
	if w.task == nil || !w.task.share.Counts() {
		return nil
	}
	return w.task.share
}

// claim returns the instance for which the task of a worker must yield; nil if it need not.
func (w *worker) claim() *preemption.Line { return w.share().Claim() }

// shield updates whether the task of a worker may be stopped: not if it is about to end, nor if the
// worker would take nothing instead. It rather is if its command runs: on a worker that fetches
// ahead others may have to wait for a position whose command runs.
func (w *worker) shield() {
	if sh := w.share(); sh != nil {
		sh.Shield(w.spared(), w.stage == event.Running)
	}
}

// choose returns the next task of a line, nil for all, that does not avoid a worker; nil if there is
// none.
func (w *worker) choose(l *preemption.Line, now time.Time) (next *task, looks int) {
	tree, others := w.pool.tree, fair.Search{For: w.program.key}
	var it *fair.Item
	if l == nil {
		it = tree.Next(&w.entry, now)
	} else {
		it = tree.NextOf(&w.entry, l.Instance(), now)
	}
	switch {
	case it == nil:
		return nil, 0
	case !it.Owner.(*task).avoidsProgram(w.program):
		return it.Owner.(*task), 0
	case l == nil:
		it, looks = tree.Find(w.queue.class, others)
	default:
		it, looks = tree.FindOf(w.queue.class, l.Instance(), others)
	}
	if it == nil {
		return nil, looks
	}
	return it.Owner.(*task), looks
}

// mayYield reports whether the task of a worker, which no client wants, may be stopped for others: not
// if it is about to be stored, nor if its second run continues elsewhere, nor if the worker would get
// nothing instead.
func (w *worker) mayYield() bool {
	return w.task.race() == nil && w.takes == Serving && w.stage != event.Uploading
}
