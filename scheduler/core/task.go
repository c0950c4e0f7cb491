package core

import (
	"container/list"
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
)

// A task is one action that is to be run once. It is in exactly one place: with
// a worker, in a queue, or among the unmatched.
//
// In a queue it has the place of each of its operations: it is handed out when the
// first of them has its turn, so it has the best priority of those that wait.
//
// With a million of them, memory is what decisions take their time for. So it has no
// more than 512 bytes: objects up to that size the garbage collector looks at together.
type task struct {
	// spec is the first operation's. It is nil for an orphan: an action that a
	// worker brought along and no client has asked for yet.
	spec   *Operation
	action action
	// before and after are tasks of the same action; see flights.
	before, after *task
	queued        time.Time
	// operations share the task; only an orphan has none. alone is the one that most
	// tasks have.
	operations sharers
	alone      operation
	// attempts counts the runs that began, resends the repetitions of an
	// assignment that its worker did not confirm, preempted the runs that were stopped
	// for others.
	attempts, resends, preempted int32
	// number counts the tasks, and begins again after the last one there is room for.
	number uint32
	// private: it began with a private operation, and is in State.private.
	private bool
	// returned: it was lost by a worker and goes before others of its priority.
	returned bool
	// impatient: nobody came to the declared size class that it waited for, so that it
	// goes where there is somebody.
	impatient bool
	// outgrown: it failed on a smaller size class than the largest, where it is to run
	// now; why says how.
	outgrown bool
	// inherited: its worker had it before it was asked for here, with limits of a size class that
	// are not known.
	inherited bool
	// hedged: when it takes longer than Size.Timeout it goes on, and is started on the largest
	// size class, too; it is late then, and race is its second run while there are two.
	hedged, late bool
	why          string
	race         *race

	worker  *worker
	started time.Time
	// share is what quotas know of it; nil outside of cohorts.
	share *share

	// item is the task in the tree of pool, which is nil for an unmatched one.
	item fair.Item
	pool *pool
	// queue is the one that it waits in, place the anchor among the unmatched.
	queue *queue
	place *list.Element

	// timer runs while the task is unmatched, in a queue that is away, hedged and running, or
	// an orphan.
	timer timer
}

// overdue ends a task that nobody could serve, or that nobody asked for, or starts one
// again that takes too long.
func (s *State) overdue(t *task) {
	if t.worker != nil && t.spec != nil {
		s.hedge(t)
		return
	}
	if t.worker != nil {
		s.stop(t)
		return
	}
	waited, why := s.cfg.MatchGrace, ""
	if q := t.queue; q != nil {
		if s.dispatch.giveUp(t) {
			return
		}
		waited, why = q.pool.patience, fmt.Sprintf("size class %d of %s has none, nor has another one", q.class, t.spec.Platform)
	} else {
		why = s.dispatch.explain(t.spec)
	}
	s.finish(t, failure(codes.FailedPrecondition, fmt.Sprintf("action %s found no worker in %s: %s", t.action, waited, why)))
}

// failure returns a response that carries an error instead of a result.
func failure(code codes.Code, message string) *repb.ExecuteResponse {
	return &repb.ExecuteResponse{Status: &spb.Status{Code: int32(code), Message: message}}
}

// serves reports whether the pool's workers may run an action.
func (p *pool) serves(spec *Operation) bool {
	return p.platform.Key() == spec.Platform.Key() && instance.Below(spec.Instance, p.prefix)
}

// join adds an operation to a task.
func (s *State) join(t *task, o *operation) {
	orphan := t.spec == nil
	if orphan {
		t.spec, t.queued = o.spec, o.queued
		s.timers.stop(&t.timer)
	}
	o.task = t
	t.operations.add(o)
	if orphan {
		t.pool.cohort.charge(t)
	}
	t.share.urge(o.spec.Priority)
	t.attach(o)
	s.operations.changed(o)
}

// start queues a new task for an operation.
func (s *State) start(t *task, o *operation) {
	t.timer.owner, t.item.Owner = t, t
	t.operations.add(o)
	o.task, t.private = t, o.spec.Private
	s.inFlight.add(t)
	s.operations.changed(o)
	s.dispatch.enqueue(t)
}

// detach takes its place in the tree from an operation of a task.
func (t *task) detach(o *operation) {
	if t.pool != nil {
		t.pool.tree.Detach(&o.entry)
	}
}

// move has a task that neither waits nor runs belong to a pool; nil: to none.
func (t *task) move(p *pool) {
	if t.pool == p {
		return
	}
	for o := range t.operations.all() {
		t.detach(o)
	}
	t.pool = p
	for o := range t.operations.all() {
		t.attach(o)
	}
}

// attach gives an operation its place in the tree that its task is in, if any.
func (t *task) attach(o *operation) {
	p := t.pool
	if p == nil {
		return
	}
	p.keys = appendKeys(p.keys[:0], p.levels, o.spec)
	p.tree.Attach(&o.entry, &t.item, p.keys,
		fair.Rank{Priority: o.spec.Priority, Expected: o.spec.Expected, Age: o.age})
}

// leave takes an operation from its task; a task with none left is stopped.
func (s *State) leave(t *task, o *operation) {
	t.detach(o)
	t.operations.remove(o)
	if t.operations.empty() {
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
		s.dispatch.release(t)
	} else {
		s.dispatch.dequeue(t)
	}
	t.move(nil)
	s.timers.stop(&t.timer)
	s.inFlight.remove(t)
}

// older reports whether a task was launched before another one.
func (t *task) older(than *task) bool { return int32(t.number-than.number) < 0 }

// finish completes the operations of a task, wherever it is.
func (s *State) finish(t *task, resp *repb.ExecuteResponse) {
	for o := range t.operations.all() {
		s.operations.complete(o, resp)
	}
	s.drop(t)
	for o := range t.operations.all() {
		t.operations.remove(o) // what is kept of one does not keep the others
	}
}

// lose takes a task back from a worker that no longer runs it. It goes to the
// front of its queue until its attempts are used up, unless another worker runs it, too.
func (s *State) lose(w *worker) {
	t := w.task
	if t.race != nil {
		s.leaveRace(w)
		return
	}
	if t.spec == nil {
		s.drop(t)
		return
	}
	if w.away && !s.forget(t) {
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
	t.resends, t.returned = 0, true
	s.operations.changedAll(t)
	s.dispatch.enqueue(t)
}
