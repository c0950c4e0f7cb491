package core

import (
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/orphan"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/roster"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// maxResends is how often an assignment that its worker never confirmed is sent
// to it again before the worker counts as lost. Such a repetition costs the
// action none of its attempts: the answer may have been lost on the way.
const maxResends = 10

// reports handle the reports of workers, and their silence.
type reports struct {
	*timer.Clock
	cfg        *tuning.Config
	operations *operations
	inFlight   *inFlight
	orphans    *orphan.Results
	workers    *roster.Roster[*worker]
	reviews    *reviews
	dispatch   *dispatcher
	calls      *calls
	hedges     *hedges
	runs       *runs
	clients    *clients
	probation  *probation
	// anew: the present report is the first from another process of its worker.
	anew bool
	// departures belongs to the present event.
	departures *[]event.Departure
}

func (rs *reports) report(r *event.Report) error {
	w := rs.workers.Get(r.Worker)
	if w != nil && w.isTwin(r) {
		w.twin = &twin{r.Address, rs.Now}
		return fmt.Errorf("%w: one at %s, this one is at %s", event.ErrTwin, w.address, r.Address)
	}
	rs.anew = w != nil && w.boot != r.Boot
	if rs.anew {
		w.ended.forget()
		w.stopping, w.shunned = nil, time.Time{}
		w.twin = nil // it may be the one that was refused
	}
	w = rs.enroll(w, r)
	if rs.anew {
		rs.probation.restarted(w, r.Boot)
	} else if w.drops(r) {
		rs.probation.ran(w, w.task.action, true)
	}
	w.boot, w.address = r.Boot, r.Address
	w.program.runsUnder(r.Circumstances)
	w.program.slots = r.Slots
	rs.workers.Connect(w, r.Connection)
	rs.dispatch.serve(w, rs.reviews.mayServe(w), r.PreferIdle)
	w.call = r.Call
	has := w.ran(r)
	if w.duty == yielding && (r.Doing != event.Executing || has != w.stops()) {
		w.duty = free
	}
	w.stage = r.Stage
	switch r.Doing {
	case event.Executing:
		rs.executes(w, has)
	case event.Completed:
		rs.completes(w, endingOf(has, r))
	default:
		rs.idles(w)
	}
	if w.duty == away { // it is here, without its task
		w.duty = free
	}
	rs.probation.called(w)
	return nil
}

func (rs *reports) hangup(e event.Hangup) {
	if w := rs.workers.Get(e.Worker); w != nil && w.isHeld() && w.call == e.Call {
		w.unidle()
		w.call = 0
		rs.Timers.Set(&w.timer, rs.Now.Add(rs.cfg.WorkerSlack))
	}
}

func (rs *reports) disconnect(e event.Disconnect) {
	limit := rs.Now.Add(rs.cfg.DisconnectSlack)
	for _, w := range rs.workers.Disconnect(e.Connection) {
		// A call that is held has its own hangup, and no action that suffers.
		if !w.isHeld() && rs.Timers.When(&w.timer).After(limit) {
			rs.Timers.Set(&w.timer, limit)
		}
	}
}

// hear records that a worker calls before timers are handled: the worker is here, however late.
func (rs *reports) hear(now time.Time, r *event.Report) {
	if w := rs.workers.Get(r.Worker); w != nil && !w.isTwin(r) && !rs.Timers.When(&w.timer).After(now) {
		rs.Timers.Stop(&w.timer)
	}
}

// isTwin reports whether a report is from another process than that of a worker whose connection is
// alive.
func (w *worker) isTwin(r *event.Report) bool {
	return w.boot != "" && r.Boot != "" && w.boot != r.Boot && w.Connection() != 0 && w.Connection() != r.Connection
}

// enroll returns the worker that reports, from now on known, in the pool and queue of its report,
// with no call held; w is it if it is known, or else nil.
func (rs *reports) enroll(w *worker, r *event.Report) *worker {
	if w != nil {
		w.unidle()
		if w.isHeld() {
			rs.calls.answer(w, event.Reply{Do: event.Superseded, NextSync: rs.Now})
			rs.Timers.Stop(&w.timer)
		}
		if rs.dispatch.pools.keeps(w.pool, r.Prefix, r.Platform) && w.queue.class == w.pool.classOf(r.SizeClass) {
			return w
		}
		rs.remove(w, event.Moved)
	}
	p := rs.dispatch.pool(r.Prefix, r.Platform)
	q := p.queue(p.classOf(r.SizeClass))
	w = &worker{Member: roster.Member{Key: r.Worker, ID: r.ID}, pool: p, queue: q}
	w.timer.Owner, w.entry.Owner, w.entry.Kind = w, w, q.class
	w.queue.workers++
	w.queue.join(w)
	rs.workers.Add(w)
	rs.reviews.everybody.Push(w, rs.Awake())
	return w
}

// remove forgets a worker, and its queue and pool if they have no other. The task that it ran goes
// back to a queue.
func (rs *reports) remove(w *worker, why event.Why) {
	rs.Timers.Stop(&w.timer)
	rs.workers.Remove(w)
	rs.reviews.everybody.Remove(w)
	rs.dispatch.withdraw(w)
	rs.dispatch.leave(w)
	if w.task != nil {
		// Before the queue is moved: running tasks are older than queued ones.
		rs.runs.lose(w, why)
	}
	w.unidle()
	w.pool.tree.Leave(&w.entry)
	rs.dispatch.vacate(w.queue)
	rs.dispatch.forget(w)
}

// silent ends the hold of an idle worker's call, or gives the worker up.
func (rs *reports) silent(w *worker) {
	if w.isHeld() {
		w.unidle()
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: rs.Now})
		return
	}
	d := event.Departure{Worker: w.Key, ID: w.ID, Drained: (w.takes == Resting || w.takes.isDrained()) && w.task == nil}
	if w.task != nil {
		d.Action = w.task.action.String()
	}
	*rs.departures = append(*rs.departures, d)
	rs.remove(w, event.Lost)
}

// idles deals with a worker that holds nothing.
func (rs *reports) idles(w *worker) {
	w.stopping = nil
	w.ended.forget()
	if rs.reconcile(w, request.Ran{}) {
		return
	}
	if w.takes.prefersIdle() {
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: rs.Now.Add(rs.cfg.SyncInterval)})
		return
	}
	if rs.Now.Before(w.shunned) {
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: w.shunned})
		return
	}
	rs.Timers.Set(&w.timer, rs.Now.Add(rs.cfg.IdleHold))
	rs.dispatch.offer(w)
}

// executes deals with a worker that is busy.
func (rs *reports) executes(w *worker, a request.Ran) {
	w.ended.forget()
	if rs.reconcile(w, a) {
		return
	}
	switch {
	case w.task != nil:
		rs.confirm(w)
		if w.stage == event.Running {
			rs.hedges.runs(w)
		}
		w.shield()
		if rs.dispatch.isPreempted(w) {
			rs.runs.preempt(w)
			return
		}
		if rs.dispatch.givesWay(w) {
			rs.runs.suspend(w, event.Unwanted, func() bool { return rs.dispatch.next(w) })
			return
		}
		rs.calls.goesOn(w)
	case w.duty == yielding:
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: rs.Now})
		return
	case rs.resume(w, a):
	case rs.cfg.Apart && !a.Named || w.stops() == a || rs.inFlight.running(w.pool, a) != nil:
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: rs.Now})
		return
	default:
		rs.keepOrphan(w, a)
	}
	rs.calls.answer(w, event.Reply{Do: event.Continue, NextSync: rs.calls.next(w)})
}

// confirm records that a worker has reported its task.
func (rs *reports) confirm(w *worker) {
	if w.duty == away {
		rs.operations.changedAll(w.task)
	}
	w.duty = confirmed
}

// completes handles the report of a worker that has ended an action. The worker is answered within
// tuning.Config.ResultHold, so that it knows that the result has arrived. A report that comes
// again, because the answer was lost, counts once: see calls.run.
func (rs *reports) completes(w *worker, e ending) {
	running := e.action
	last := w.ended.get()
	repeated := last.action == e.action && proto.Equal(last.response, e.response)
	if repeated {
		running = request.Ran{}
	}
	w.ended.put(e)
	if !repeated {
		rs.takeLate(w, e)
	}
	if rs.reconcile(w, running) {
		return
	}
	resp, claim := e.response, w.claim()
	if w.duty == away && w.task != nil {
		rs.confirm(w)
	}
	if resp.GetResult() == nil && resp.GetStatus().GetCode() == 0 {
		resp = failure(codes.Internal, "worker "+w.Key+" reported neither a result nor an error")
	}
	nothing, failed := saysNothing(codes.Code(resp.GetStatus().GetCode()))
	if w.task != nil && !nothing {
		rs.probation.ran(w, e.action.Key, failed)
	}
	switch good := resp.GetStatus().GetCode() == 0; {
	case w.task != nil && w.task.spec == nil:
		rs.runs.drop(w.task)
		rs.keepResult(w, e.action, resp)
	case w.task != nil && failed && rs.runs.retry(w, resp):
	case w.task != nil:
		e.response = resp
		rs.runs.conclude(w, e)
	case repeated || !good:
	default:
		rs.unexpected(w, e)
	}
	w.stopping = nil
	switch {
	case rs.dispatch.nextFor(w, claim):
	case rs.Now.Before(w.shunned):
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: w.shunned})
	case w.takes.prefersIdle() || rs.cfg.ResultHold == 0 && !rs.dispatch.next(w):
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: rs.Now})
	case w.isHeld():
		rs.Timers.Set(&w.timer, rs.Now.Add(rs.cfg.ResultHold))
		rs.dispatch.offer(w)
	}
}

// takeLate takes the result of a task that a worker was about to stop for another one, before the
// worker learned of that.
func (rs *reports) takeLate(w *worker, e ending) {
	if w.task == nil || w.task.ran() == e.action || w.stops() != e.action || e.response.GetStatus().GetCode() != 0 {
		return
	}
	t := rs.inFlight.waiting(w.pool, e.action)
	if t == nil || e.response.GetResult() == nil {
		return
	}
	if _, again := t.mispredicted(w, e.response); !again {
		rs.runs.finish(t, e.response)
	}
}

// unexpected handles an unexpected result of a worker. If a client waits for it, the worker was
// taken for lost. Otherwise the scheduler may have been restarted, and a client may come back for
// it.
func (rs *reports) unexpected(w *worker, e ending) {
	a, resp := e.action, e.response
	if rs.resume(w, a) {
		rs.runs.conclude(w, e)
	} else if t := rs.inFlight.running(w.pool, a); t != nil {
		rs.overtake(t, w, resp)
	} else if w.stops() != a {
		rs.keepResult(w, a, resp)
	}
}

// reconcile compares the task of a worker with the one that it reports (none: nothing). If the
// worker never confirmed its task, the assignment may not have arrived; it is sent again, and
// reconcile returns true: the call is answered. Otherwise the worker has dropped the task, and it
// goes back to the queue. A worker that never confirms an assignment has
// failed, and gets nothing for a while, however early it calls: it would get the same action again,
// until that has no attempts left.
func (rs *reports) reconcile(w *worker, a request.Ran) bool {
	t := w.task
	if t == nil || t.ran() == a {
		return false
	}
	why := event.Dropped
	switch {
	case rs.anew:
		why = event.Restarted
	case w.duty == assigned:
		why = event.Unconfirmed
	}
	switch {
	case w.duty != assigned || !t.wanted() || t.spec == nil:
	case w.takes.prefersIdle():
		// It began to drain before the assignment reached it.
		if w == t.worker() {
			t.attempts--
		}
	case t.run().resends < maxResends:
		t.run().resends++
		rs.calls.run(w)
		return true
	default: // it takes nothing, and would not take the next one: others have their turn first
		rs.probation.ran(w, t.action, true)
		rs.runs.lose(w, event.Unconfirmed)
		w.shunned = rs.Now.Add(rs.cfg.SyncInterval)
		rs.calls.answer(w, event.Reply{Do: event.BeIdle, NextSync: w.shunned})
		return true
	}
	rs.runs.lose(w, why)
	return false
}

// resume gives a worker the waiting task of an action that it runs already.
func (rs *reports) resume(w *worker, a request.Ran) bool {
	t := rs.inFlight.waiting(w.pool, a)
	if t == nil {
		return false
	}
	rs.dispatch.hand(t, w)
	w.duty, t.run().inherited = confirmed, true
	return true
}

// overtake ends a task with the result of a worker that was taken for lost, if it arrives before
// that of the worker that replaced it. A failure on a smaller size class ends nothing.
func (rs *reports) overtake(t *task, w *worker, resp *repb.ExecuteResponse) {
	if _, again := t.mispredicted(w, resp); again {
		return
	}
	lost := t.worker()
	rs.calls.take(lost, event.Overtaken)
	lost.free()
	rs.calls.stop(lost, t.ran())
	t.pass(w)
	w.task, w.duty = t, confirmed
	rs.runs.finish(t, resp)
}

// keepOrphan keeps an action that a worker runs and no client has asked for, as
// after a restart of the scheduler, for a client to come back to.
func (rs *reports) keepOrphan(w *worker, a request.Ran) {
	t := &task{action: a.Key, queued: rs.Now, attempts: 1, pool: w.pool}
	t.begin(w, rs.Now)
	t.run().inherited, t.run().as = true, &a
	t.timer.Owner, t.item.Owner = t, t
	w.pool.tree.Start(&t.item, &w.entry, rs.Now, w.queue.cost())
	rs.Timers.Set(&t.timer, rs.Now.Add(rs.cfg.ClientGrace))
	rs.inFlight.add(t)
	rs.dispatch.executing++
	w.task, w.duty, w.stopping = t, confirmed, nil
}

// keepResult keeps a result that no client has asked for. Errors are not kept, nor is a failure on
// a small size class, which is final only on the largest: when the client comes back, its action
// runs again.
func (rs *reports) keepResult(w *worker, a request.Ran, resp *repb.ExecuteResponse) {
	largest := w.pool.largest((*queue).served)
	small := largest != nil && w.queue.class < largest.class
	if rs.cfg.Apart && !a.Named || resp.GetStatus().GetCode() != 0 || small && resp.GetResult().GetExitCode() != 0 {
		return
	}
	rs.orphans.Add(&orphan.Result{Action: a, Pool: w.pool, Worker: w.Key, Response: resp})
}

// rested closes a queue whose workers have all wanted no work for long, and run none. Workers that
// run an action may continue after it.
func (rs *reports) rested(q *queue) {
	busy := func(w *worker) bool { return w.takes == Resting && w.task != nil }
	for _, p := range q.programs {
		if slices.ContainsFunc(p.positions, busy) {
			rs.Timers.Set(&q.rest, rs.Now.Add(rs.cfg.MatchGrace))
			return
		}
	}
	rs.dispatch.watch(q)
	if q.open() || q.declared {
		return
	}
	rs.dispatch.sweep(&q.line)
}

// settled ends the time in which no worker gets an action (tuning.Config.Settle). The workers that
// came meanwhile get queued tasks, in the order in which they came.
func (rs *reports) settled() { rs.reviews.start() }

// settleNow is settled before the time is over: all workers that could report a running action have
// called.
func (rs *reports) settleNow() {
	if rs.dispatch.isSettling() {
		rs.Timers.Stop(&rs.dispatch.settle)
		rs.settled()
	}
}

func (rs *reports) restore(e event.Restore) {
	h := e.Held
	w := rs.workers.Get(h.Worker)
	if rs.operations.byName[h.Name] != nil || w != nil && w.duty != away {
		return
	}
	if w == nil {
		w = rs.enroll(nil, &event.Report{
			Worker: h.Worker, ID: h.ID, Prefix: h.Prefix,
			Platform: h.WorkerPlatform, SizeClass: h.SizeClass,
		})
		w.duty = away
		rs.dispatch.serve(w, rs.reviews.mayServe(w), false)
		rs.Timers.Set(&w.timer, rs.Now.Add(rs.cfg.WorkerSlack))
	}
	a := request.KeyOf(h.Digest)
	t := w.task
	if !w.pool.Serves(h.Operation) || t != nil && t.ran() != request.RanFor(h.Instance, a) {
		return
	}
	if t != nil {
		rs.clients.join(t, rs.operations.restore(h, &operation{}))
		return
	}
	t = &task{spec: h.Operation, action: a, queued: h.Queued, attempts: int32(h.Attempts), pool: w.pool}
	t.begin(w, h.Started)
	t.timer.Owner, t.item.Owner = t, t
	w.task = t
	rs.inFlight.add(t)
	rs.dispatch.executing++
	o := rs.operations.restore(h, &t.alone)
	t.add(o)
	t.charge()
	t.attach(o)
	w.pool.tree.Start(&t.item, &w.entry, rs.Now, w.queue.cost())
	rs.operations.changed(o)
}
