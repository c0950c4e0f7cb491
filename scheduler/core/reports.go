package core

import (
	"fmt"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

func (r *Report) apply(s *State) error {
	w := s.workers.byKey[r.Worker]
	if w != nil && w.isTwin(r) {
		w.twin, w.refused = r.Address, s.now
		return fmt.Errorf("%w: one at %s, this one is at %s", ErrTwin, w.address, r.Address)
	}
	if w != nil && w.boot != r.Boot {
		w.reported, w.stopping = ending{}, action{} // it has started anew
	}
	w = s.enroll(w, r)
	w.boot, w.address = r.Boot, r.Address
	s.workers.connect(w, r.Connection)
	w.prefersIdle = r.PreferIdle
	s.dispatch.serve(w, s.mayServe(w))
	w.call, w.held = r.Call, true
	if w.duty == yielding && (r.Doing != Executing || actionOf(r.Action) != w.stopping) {
		w.duty = free
	}
	w.stage = r.Stage
	switch r.Doing {
	case Executing:
		s.executes(w, actionOf(r.Action))
	case Completed:
		s.completes(w, ending{actionOf(r.Action), r.Response, r.OutOfMemory})
	default:
		s.idles(w)
	}
	if w.duty == away { // it is here, without what it had
		w.duty = free
	}
	return nil
}

func (e Hangup) apply(s *State) error {
	if w := s.workers.byKey[e.Worker]; w != nil && w.held && w.call == e.Call {
		w.unidle()
		w.held = false
		s.timers.Set(&w.timer, s.now.Add(s.cfg.WorkerSlack))
	}
	return nil
}

func (e Disconnect) apply(s *State) error {
	limit := s.now.Add(s.cfg.DisconnectSlack)
	for _, w := range s.workers.disconnect(e.Connection) {
		// A call that is held has its own hangup, and no action that suffers.
		if !w.held && s.timers.When(&w.timer).After(limit) {
			s.timers.Set(&w.timer, limit)
		}
	}
	return nil
}

// mayServe reports whether operators let a worker take work.
func (s *State) mayServe(w *worker) bool {
	if w.takes == unheard {
		return !s.workers.isDrained(w)
	}
	return w.takes != drained
}

// isTwin reports whether a report comes from another process than that of a worker, which is there: its connection lives.
func (w *worker) isTwin(r *Report) bool {
	return w.boot != "" && r.Boot != "" && w.boot != r.Boot && w.connection != 0 && w.connection != r.Connection
}

// enroll returns the worker that reports, known from now on, in the pool and
// queue it says it belongs to, with no call held; w is it if it is known, else nil.
func (s *State) enroll(w *worker, r *Report) *worker {
	if w != nil {
		w.unidle()
		if w.held {
			s.calls.answer(w, Reply{Do: Superseded, NextSync: s.now})
			s.timers.Stop(&w.timer)
		}
		if w.pool.key() == (poolKey{r.Prefix, r.Platform.Key()}) && w.queue.class == r.SizeClass {
			return w
		}
		s.remove(w)
	}
	p := s.dispatch.pool(r.Prefix, r.Platform)
	w = &worker{key: r.Worker, id: r.ID, pool: p, queue: p.queue(r.SizeClass)}
	w.timer.Owner, w.entry.Owner, w.entry.Kind = w, w, r.SizeClass
	w.queue.workers++
	s.workers.add(w)
	return w
}

// remove forgets a worker, and its queue and pool if they were its alone. What
// it ran goes back to a queue.
func (s *State) remove(w *worker) {
	s.timers.Stop(&w.timer)
	s.workers.remove(w)
	s.dispatch.withdraw(w)
	if w.task != nil {
		// Before the queue is moved: what ran is older than what waits.
		s.runs.lose(w)
	}
	w.pool.tree.Leave(&w.entry)
	s.dispatch.vacate(w.queue)
	s.dispatch.forget(w)
}

// silent ends the hold of an idle worker's call, or gives the worker up.
func (s *State) silent(w *worker) {
	if w.held {
		w.unidle()
		s.calls.answer(w, Reply{Do: BeIdle, NextSync: s.now})
		return
	}
	d := Departure{Worker: w.key, ID: w.id, Drained: w.takes != serving && w.task == nil}
	if w.task != nil {
		d.Action = w.task.action.String()
	}
	s.out.Departures = append(s.out.Departures, d)
	s.remove(w)
}

// idles deals with a worker that holds nothing.
func (s *State) idles(w *worker) {
	w.stopping, w.reported = action{}, ending{}
	if s.reconcile(w, action{}) {
		return
	}
	if w.prefersIdle {
		s.calls.answer(w, Reply{Do: BeIdle, NextSync: s.now.Add(s.cfg.SyncInterval)})
		return
	}
	s.timers.Set(&w.timer, s.now.Add(s.cfg.IdleHold))
	s.dispatch.offer(w)
}

// executes deals with a worker that is busy.
func (s *State) executes(w *worker, a action) {
	w.reported = ending{}
	if s.reconcile(w, a) {
		return
	}
	switch {
	case w.task != nil:
		s.confirm(w)
		if w.stage == Running {
			s.hedges.runs(w)
		}
		w.shield()
		if !s.dispatch.isSettling() && w.pool.cohort.isPreempted(w) {
			s.runs.preempt(w)
			return
		}
		if s.dispatch.givesWay(w) {
			s.runs.suspend(w, func() bool { return s.dispatch.next(w) })
			return
		}
	case w.duty == yielding:
		s.calls.answer(w, Reply{Do: BeIdle, NextSync: s.now})
		return
	case s.resume(w, a):
	case s.cfg.Apart || w.stopping == a || s.inFlight.running(w.pool, a) != nil:
		s.calls.answer(w, Reply{Do: BeIdle, NextSync: s.now})
		return
	default:
		s.keepOrphan(w, a)
	}
	s.calls.answer(w, Reply{Do: Continue, NextSync: s.calls.next(w)})
}

// confirm notes that a worker has its task, as it says.
func (s *State) confirm(w *worker) {
	if w.duty == away {
		s.operations.changedAll(w.task)
	}
	w.duty = confirmed
}

// completes deals with a worker that has ended an action. It is answered within
// Config.ResultHold, so that it knows that the result has arrived. A report that comes
// twice, because the answer was lost, counts once, even if the worker has been given the
// same action again meanwhile. What comes three times over has been run: the worker was told to run it again.
func (s *State) completes(w *worker, e ending) {
	running := e.action
	again := w.task != nil && w.task.action == e.action && w.task.run.resends > 0
	repeated := !again && w.reported.action == e.action && proto.Equal(w.reported.response, e.response)
	if repeated {
		running = action{}
	}
	w.reported = e
	if !repeated {
		s.takeLate(w, e)
	}
	if s.reconcile(w, running) {
		return
	}
	resp, claim := e.response, w.claim()
	if w.duty == away && w.task != nil {
		s.confirm(w)
	}
	if resp.GetResult() == nil && resp.GetStatus().GetCode() == 0 {
		resp = failure(codes.Internal, "worker "+w.key+" reported neither a result nor an error")
	}
	switch good := resp.GetStatus().GetCode() == 0; {
	case w.task != nil && w.task.spec == nil:
		s.runs.drop(w.task)
		s.orphans.add(w, e.action, resp)
	case w.task != nil:
		e.response = resp
		s.runs.conclude(w, e)
	case repeated || !good:
	default:
		s.unexpected(w, e)
	}
	w.stopping = action{}
	switch {
	case s.dispatch.nextFor(w, claim):
	case w.prefersIdle || s.cfg.ResultHold == 0 && !s.dispatch.next(w):
		s.calls.answer(w, Reply{Do: BeIdle, NextSync: s.now})
	case w.held:
		s.timers.Set(&w.timer, s.now.Add(s.cfg.ResultHold))
		s.dispatch.offer(w)
	}
}

// takeLate takes the result of a task that a worker was to stop for another one, before it heard of that.
func (s *State) takeLate(w *worker, e ending) {
	if w.task == nil || w.task.action == e.action || w.stopping != e.action || e.response.GetStatus().GetCode() != 0 {
		return
	}
	t := s.inFlight.waiting(w.pool, e.action)
	if t == nil || e.response.GetResult() == nil {
		return
	}
	if _, again := t.mispredicted(w, e.response); !again {
		s.runs.finish(t, e.response)
	}
}

// unexpected deals with a result that is not expected from this worker. If somebody
// waits for it, it comes from one that was taken for lost. Else it may be that the
// scheduler was started anew, and somebody will.
func (s *State) unexpected(w *worker, e ending) {
	a, resp := e.action, e.response
	if s.resume(w, a) {
		s.runs.conclude(w, e)
	} else if t := s.inFlight.running(w.pool, a); t != nil {
		s.overtake(t, w, resp)
	} else if w.stopping != a {
		s.orphans.add(w, a, resp)
	}
}

// reconcile compares what a worker should run with what it says it runs
// (none: nothing). If it never confirmed its task the assignment may not have
// reached it and is sent again, and reconcile is true: the call is answered.
// Otherwise the worker has dropped the task, and it goes back to the queue.
func (s *State) reconcile(w *worker, a action) bool {
	t := w.task
	if t == nil || t.action == a {
		return false
	}
	switch {
	case w.duty != assigned || !t.wanted() || t.spec == nil || t.run.resends >= maxResends:
	case w.prefersIdle:
		// It began to drain before the assignment reached it.
		if w == t.worker() {
			t.attempts--
		}
	default:
		t.run.resends++
		s.calls.run(w)
		return true
	}
	s.runs.lose(w)
	return false
}

// resume gives a worker the waiting task of an action that it runs already.
func (s *State) resume(w *worker, a action) bool {
	t := s.inFlight.waiting(w.pool, a)
	if t == nil {
		return false
	}
	s.dispatch.hand(t, w)
	w.duty, t.run.inherited = confirmed, true
	return true
}

// overtake ends a task with the result of a worker that was taken for lost, which
// is there before that of the worker that took its place. A failure on a smaller size class ends nothing.
func (s *State) overtake(t *task, w *worker, resp *repb.ExecuteResponse) {
	if _, again := t.mispredicted(w, resp); again {
		return
	}
	t.run.worker.free()
	s.calls.stop(t.run.worker, t.action)
	t.run.worker, w.task, w.duty = w, t, confirmed
	s.runs.finish(t, resp)
}

// keepOrphan keeps an action that a worker runs and no client has asked for, as
// after a restart of the scheduler, for a client to come back to.
func (s *State) keepOrphan(w *worker, a action) {
	t := &task{action: a, queued: s.now, attempts: 1, pool: w.pool}
	t.begin(w, s.now)
	t.run.inherited = true
	t.timer.Owner, t.item.Owner = t, t
	w.pool.tree.Start(&t.item, &w.entry, s.now, w.queue.cost())
	s.timers.Set(&t.timer, s.now.Add(s.cfg.ClientGrace))
	s.inFlight.add(t)
	s.dispatch.executing++
	w.task, w.duty, w.stopping = t, confirmed, action{}
}

// rested closes a queue that only has workers that have long wanted no work, nor do
// any. Those that do some may well go on after it.
func (s *State) rested(q *queue) {
	for _, w := range s.workers.byKey {
		if w.queue == q && w.takes == resting && w.task != nil {
			s.timers.Set(&q.rest, s.now.Add(s.cfg.MatchGrace))
			return
		}
	}
	s.dispatch.watch(q)
	if q.open() || q.declared {
		return
	}
	s.dispatch.rematch(q.tasks())
}

// settled ends the time in which nothing is given to workers (Config.Settle). It lets the workers that came
// meanwhile, in the order of their names, have what waits.
func (s *State) settled() {
	for _, w := range s.workers.sorted() {
		if w.held {
			s.dispatch.offer(w)
		}
	}
}
