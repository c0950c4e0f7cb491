package core

import (
	"fmt"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// conclude ends a task with what a worker of it reports, or runs it again on the largest size class.
func (s *State) conclude(w *worker, e ending) {
	t, resp := w.task, e.response
	if t.run.race != nil && !s.hedges.decide(w, resp) {
		return
	}
	w.queue.load.ran(s.now.Sub(t.started))
	largest, again := t.mispredicted(w, resp)
	if t.spec.Size.Class > 0 {
		s.out.Ended = append(s.out.Ended, Ended{
			Operation: t.spec, Class: w.queue.class, Largest: largest, Again: again, Late: t.course.late(), Response: resp,
		})
	}
	if !again {
		if t.course.largest() {
			resp = Annotated(resp, fmt.Sprintf("ran on size class %d: %s", w.queue.class, t.why))
		}
		s.finish(t, resp)
		return
	}
	s.tally.Outgrown++
	if t.course != overtaken {
		t.course = outgrown
	}
	t.why = fmt.Sprintf("%s on size class %d", failureOf(e), w.queue.class)
	s.dispatch.release(t)
	// It is not the worker that was lost, and the client has waited already.
	t.attempts--
	t.returned = true
	s.operations.changedAll(t)
	s.dispatch.enqueue(t)
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

// Annotated returns a response with a further line for people.
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
func (s *State) finish(t *task, resp *repb.ExecuteResponse) {
	for o := range t.operations.all() {
		s.operations.complete(o, resp)
	}
	s.drop(t)
	for o := range t.operations.all() {
		t.remove(o) // what is kept of one does not keep the others
	}
}

// lose takes a task back from a worker that no longer runs it. It goes to the
// front of its queue until its attempts are used up, unless another worker runs it, too.
func (s *State) lose(w *worker) {
	t := w.task
	if t.run.race != nil {
		s.hedges.leave(w)
		return
	}
	if t.spec == nil {
		s.drop(t)
		return
	}
	if w.duty == away && !s.forget(t) {
		return
	}
	if int(t.attempts-t.preempted) >= s.cfg.MaxAttempts {
		s.finish(t, failure(codes.Internal, fmt.Sprintf(
			"action %s was given up after %d attempts: each time the worker was lost or dropped it, last %s",
			t.action, t.attempts-t.preempted, w.key)))
		return
	}
	s.tally.Returned++
	s.dispatch.release(t)
	t.returned = true
	s.operations.changedAll(t)
	s.dispatch.enqueue(t)
}

// preempt has a worker stop its task, which waits again, before others of its priority
// in its branch, and run one of those for whom that is. It costs the task none of its attempts.
func (s *State) preempt(w *worker) {
	l := w.task.share.mark.claim
	w.task.share.cohort.preemptions++
	s.suspend(w, func() bool { return s.dispatch.nextFor(w, l) })
}

// suspend has a worker that calls stop its task, which waits again, and run what next assigns it.
func (s *State) suspend(w *worker, next func() bool) {
	t := w.task
	w.stopping = t.action
	s.dispatch.release(t)
	t.preempted++
	t.returned = true
	s.operations.changedAll(t)
	if !next() {
		w.duty = yielding
		s.calls.answer(w, Reply{Do: BeIdle, NextSync: s.now})
	}
	s.dispatch.enqueue(t)
}

// stop drops a task that nobody wants. Its worker is woken to be told.
func (s *State) stop(t *task) {
	if w := t.worker(); w != nil {
		s.calls.stop(w, t.action)
	}
	s.drop(t)
}

// drop takes a task out of its place and out of everything else.
func (s *State) drop(t *task) {
	if t.worker() != nil {
		s.dispatch.release(t)
	} else {
		s.dispatch.dequeue(t)
	}
	t.move(nil)
	s.timers.stop(&t.timer)
	s.inFlight.remove(t)
}

// overdue ends a task that nobody could serve, or that nobody asked for, or starts one
// again that takes too long.
func (s *State) overdue(t *task) {
	if t.worker() != nil && t.spec != nil {
		s.hedges.start(t)
		return
	}
	if t.worker() != nil {
		s.stop(t)
		return
	}
	waited, why := s.cfg.MatchGrace, ""
	q := t.queue()
	switch {
	case q != nil && s.dispatch.giveUp(t):
		return
	case q != nil && q.drained > 0:
		waited, why = q.patience(&s.cfg), fmt.Sprintf("all workers of size class %d of %s are drained", q.class, t.spec.Platform)
	case q != nil:
		waited, why = q.pool.patience, fmt.Sprintf("size class %d of %s has none, nor has another one", q.class, t.spec.Platform)
	default:
		why = s.dispatch.explain(t.spec)
	}
	s.finish(t, failure(codes.FailedPrecondition, fmt.Sprintf("action %s found no worker in %s: %s", t.action, waited, why)))
}

// rested closes a queue that only has workers that have long wanted no work, nor do
// any. Those that do some may well go on after it.
func (s *State) rested(q *queue) {
	for _, w := range s.workers.byKey {
		if w.queue == q && w.takes == resting && w.task != nil {
			s.timers.set(&q.rest, s.now.Add(s.cfg.MatchGrace))
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
