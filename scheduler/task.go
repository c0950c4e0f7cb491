package scheduler

import (
	"container/list"
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// A task is one action that is to be run once. It is in exactly one place: with
// a worker, in a queue, or among the unmatched.
type task struct {
	// spec is the first operation's. It is nil for an orphan: an action that a
	// worker brought along and no client has asked for yet.
	spec *Operation
	// action is "<hash>/<size>", as workers report it.
	action string
	queued time.Time
	// operations share the task; only an orphan has none.
	operations []*operation
	// attempts counts the runs that began, resends the repetitions of an
	// assignment that its worker did not confirm.
	attempts, resends int

	worker  *worker
	started time.Time

	// queue is nil for an unmatched task. place is the anchor in either list.
	queue *queue
	place *list.Element

	// timer runs while the task is unmatched, or an orphan.
	timer timer
}

// due ends a task that nobody could serve, or that nobody asked for.
func (t *task) due(s *State) {
	if t.worker != nil {
		s.stop(t)
		return
	}
	s.finish(t, failure(codes.FailedPrecondition, fmt.Sprintf("action %s found no worker in %s: %s",
		t.action, s.cfg.MatchGrace, s.explain(t.spec))))
}

// failure returns a response that carries an error instead of a result.
func failure(code codes.Code, message string) *repb.ExecuteResponse {
	return &repb.ExecuteResponse{Status: &spb.Status{Code: int32(code), Message: message}}
}

// joinable returns the task that an operation may share, or nil. An orphan is
// there for anybody who asks for its action, also for a private operation, which
// then has it alone: most likely that is whose it was before a restart.
func (s *State) joinable(spec *Operation) *task {
	for _, t := range s.inFlight[spec.Digest.String()] {
		if t.spec == nil && t.worker.pool.serves(spec) {
			return t
		}
		if t.spec != nil && !t.spec.Private && !spec.Private && t.spec.Instance == spec.Instance && t.spec.Digest == spec.Digest {
			return t
		}
	}
	return nil
}

// serves reports whether the pool's workers may run an action.
func (p *pool) serves(spec *Operation) bool {
	return p.platform.Key() == spec.Platform.Key() && hasPrefix(spec.Instance, p.prefix)
}

// join adds an operation to a task.
func (s *State) join(t *task, o *operation) {
	if t.spec == nil {
		t.spec, t.queued = o.spec, o.queued
		s.timers.stop(&t.timer)
	}
	o.task = t
	t.operations = append(t.operations, o)
	s.changed(o)
}

// start makes a task for an operation and queues it.
func (s *State) start(o *operation) {
	t := &task{spec: o.spec, action: o.spec.Digest.String(), queued: s.now, operations: []*operation{o}}
	t.timer.owner = t
	o.task = t
	s.inFlight[t.action] = append(s.inFlight[t.action], t)
	s.changed(o)
	s.enqueue(t, false)
}

// match returns the queue that has to run an action; nil if no worker can. The
// longest instance name prefix wins, then the largest size class: nothing is
// known yet of what the action needs, and the largest never is too small.
func (s *State) match(spec *Operation) *queue {
	for prefix := range prefixes(spec.Instance) {
		if p := s.pools[poolKey{prefix, spec.Platform.Key()}]; p != nil {
			if q := p.largest(); q != nil {
				return q
			}
		}
	}
	return nil
}

// enqueue gives a task that is in no place to an idle worker or a queue, or
// puts it among the unmatched.
func (s *State) enqueue(t *task, front bool) {
	s.queued++
	t.queue = s.match(t.spec)
	switch q := t.queue; {
	case q == nil:
		s.timers.set(&t.timer, s.now.Add(s.cfg.MatchGrace))
		t.place = s.unmatched.pushBack(t)
	case front:
		t.place = q.tasks.pushFront(t)
	default:
		t.place = q.tasks.pushBack(t)
	}
	if t.queue == nil {
		return
	}
	if w, ok := t.queue.idle.front(); ok {
		s.assign(t, w)
	}
}

// dequeue takes a task from the place where it waits.
func (s *State) dequeue(t *task) {
	s.queued--
	if t.queue == nil {
		s.timers.stop(&t.timer)
		s.unmatched.remove(t.place)
	} else {
		t.queue.tasks.remove(t.place)
	}
	t.queue, t.place = nil, nil
}

// rematch finds a new place for each of tasks, in order.
func (s *State) rematch(tasks []*task) {
	for _, t := range tasks {
		s.dequeue(t)
		s.enqueue(t, false)
	}
}

// assign has a worker that is free, and whose call waits for an answer, run a
// waiting task.
func (s *State) assign(t *task, w *worker) {
	s.hand(t, w)
	s.resend(w)
}

// hand moves a waiting task to a worker.
func (s *State) hand(t *task, w *worker) {
	s.dequeue(t)
	s.unidle(w)
	s.executing++
	t.attempts++
	t.worker, t.started = w, s.now
	w.task, w.confirmed = t, false
	for _, o := range t.operations {
		s.changed(o)
	}
}

// release takes a task from its worker and leaves it in no place.
func (s *State) release(t *task) {
	s.executing--
	t.worker.task, t.worker = nil, nil
}

// leave takes an operation from its task; a task with none left is stopped.
func (s *State) leave(t *task, o *operation) {
	t.operations = slices.DeleteFunc(t.operations, func(x *operation) bool { return x == o })
	if len(t.operations) == 0 {
		s.stop(t)
	}
}

// stop drops a task that nobody wants. Its worker is told at its next call.
func (s *State) stop(t *task) {
	if w := t.worker; w != nil {
		w.stopping = t.action
	}
	s.drop(t)
}

// drop takes a task out of its place and out of everything else.
func (s *State) drop(t *task) {
	if t.worker != nil {
		s.release(t)
	} else if t.place != nil {
		s.dequeue(t)
	}
	s.timers.stop(&t.timer)
	ts := slices.DeleteFunc(s.inFlight[t.action], func(x *task) bool { return x == t })
	if len(ts) > 0 {
		s.inFlight[t.action] = ts
	} else {
		delete(s.inFlight, t.action)
	}
}

// finish completes the operations of a task, wherever it is.
func (s *State) finish(t *task, resp *repb.ExecuteResponse) {
	for _, o := range t.operations {
		s.complete(o, resp)
	}
	s.drop(t)
}

// lose takes a task back from a worker that no longer runs it. It goes to the
// front of its queue until its attempts are used up.
func (s *State) lose(t *task) {
	w := t.worker
	if t.spec == nil {
		s.drop(t)
		return
	}
	if t.attempts >= s.cfg.MaxAttempts {
		s.finish(t, failure(codes.Internal, fmt.Sprintf(
			"action %s was given up after %d attempts: each time the worker was lost or dropped it, last %s",
			t.action, t.attempts, w.key)))
		return
	}
	s.release(t)
	t.resends = 0
	for _, o := range t.operations {
		s.changed(o)
	}
	s.enqueue(t, true)
}
