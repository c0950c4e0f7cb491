package core

import (
	"fmt"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
)

func (e Submit) apply(s *State) error {
	spec, a := e.Operation, actionOf(e.Digest)
	t := s.inFlight.joinable(spec, a)
	if err := s.admit(spec, t); err != nil {
		return fmt.Errorf("submit operation %s: %w", spec.Name, err)
	}
	switch r := s.orphans.find(spec, a); {
	case t != nil:
		s.tally.Joined++
		s.join(t, s.operations.add(spec, &operation{}))
	case r != nil:
		s.deliver(r, s.operations.add(spec, &operation{}))
	default:
		t = &task{spec: spec, action: a, queued: s.now}
		s.start(t, s.operations.add(spec, &t.alone))
	}
	return nil
}

// deliver completes an operation with a result that was there before it. A private
// operation has it alone.
func (s *State) deliver(r *orphanResult, o *operation) {
	if o.spec.Private {
		s.orphans.remove(r)
	}
	o.task = &task{attempts: 1}
	o.task.begin(&worker{key: r.worker}, r.started)
	s.operations.complete(o, r.response)
}

// admit returns why an operation is not accepted; t is the task that it would share.
func (s *State) admit(spec *Operation, t *task) error {
	if s.operations.byName[spec.Name] != nil {
		return ErrDuplicate
	}
	if n := s.operations.clients[spec.Client]; n >= s.cfg.MaxPerClient {
		return fmt.Errorf("%w: %d of %s are not done", ErrClientFull, n, spec.Client)
	}
	if t != nil {
		return nil
	}
	if s.dispatch.queued >= s.cfg.MaxQueued {
		return fmt.Errorf("%w: %d actions wait", ErrQueueFull, s.dispatch.queued)
	}
	waiting := s.dispatch.unmatched.len()
	if q := s.dispatch.match(spec, spec.Size.Class, true); q != nil {
		waiting = q.waiting
	}
	if waiting >= s.cfg.MaxPerQueue {
		return fmt.Errorf("%w: %d actions wait for a worker with %s", ErrQueueFull, waiting, spec.Platform)
	}
	return nil
}

// join adds an operation to a task.
func (s *State) join(t *task, o *operation) {
	orphan := t.spec == nil
	if orphan {
		t.spec, t.queued = o.spec, o.queued
		s.timers.Stop(&t.timer)
	}
	parked := !t.wanted()
	t.add(o)
	if orphan {
		t.pool.cohort.charge(t)
	}
	t.share.urge(o.spec.Priority)
	t.attach(o)
	s.operations.changed(o)
	if parked && t.queue() != nil {
		s.dispatch.rematch([]*task{t})
	}
}

// start queues a new task for an operation.
func (s *State) start(t *task, o *operation) {
	t.timer.Owner, t.item.Owner = t, t
	t.add(o)
	t.private = o.spec.Private
	s.inFlight.add(t)
	s.operations.changed(o)
	s.dispatch.enqueue(t)
}

func (e Attach) apply(s *State) error {
	o, ok := s.operations.byName[e.Name]
	if !ok {
		return ErrUnknown
	}
	o.waiters++
	if !o.done() {
		s.timers.Stop(&o.timer)
		s.want(o)
	}
	return nil
}

// want notes that somebody waits for an operation, which has its turns again.
func (s *State) want(o *operation) {
	t := o.task
	if o.wanted {
		return
	}
	o.wanted = true
	if t.pool != nil {
		t.pool.tree.Unpark(&o.entry)
	}
	if t.wanting++; t.wanting == 1 && t.queue() != nil {
		s.dispatch.rematch([]*task{t})
	}
}

// unwant notes that nobody waits for an operation any more. A task with none that is wanted is parked if it waits and, if it
// runs, the first to be stopped when others wait.
func (s *State) unwant(o *operation) {
	t := o.task
	o.wanted = false
	if t.pool != nil {
		t.pool.tree.Park(&o.entry)
	}
	if t.wanting--; t.wanting > 0 {
		return
	}
	if t.queue() != nil {
		s.dispatch.rematch([]*task{t})
	} else if w := t.worker(); w != nil {
		s.dispatch.unwanted(w)
	}
}

func (e Detach) apply(s *State) error {
	o, ok := s.operations.byName[e.Name]
	if !ok || o.waiters == 0 {
		return nil
	}
	if o.waiters--; o.waiters > 0 || o.done() {
		return nil
	}
	if e.Now {
		s.abandon(o)
		return nil
	}
	s.timers.Set(&o.timer, s.now.Add(s.cfg.ClientGrace))
	s.unwant(o)
	return nil
}

func (e Cancel) apply(s *State) error {
	o, ok := s.operations.byName[e.Name]
	if !ok {
		return ErrUnknown
	}
	if !o.done() {
		s.abort(o, failure(codes.Canceled, "the operation was cancelled"))
	}
	return nil
}

// abort ends an operation, and what runs for it alone.
func (s *State) abort(o *operation, resp *repb.ExecuteResponse) {
	t := o.task
	s.operations.complete(o, resp)
	s.leave(t, o)
}

// abandon drops an operation: nobody came back for it.
func (s *State) abandon(o *operation) {
	s.operations.drop(o)
	s.leave(o.task, o)
	o.task = nil
	s.operations.changed(o)
}

// leave takes an operation from its task; a task with none left is stopped.
func (s *State) leave(t *task, o *operation) {
	t.detach(o)
	wanted := o.wanted
	t.remove(o)
	switch {
	case t.operations.empty():
		s.runs.stop(t)
	case wanted && t.wanting == 0 && t.queue() != nil:
		s.dispatch.rematch([]*task{t})
	case wanted && t.wanting == 0 && t.worker() != nil:
		s.dispatch.unwanted(t.worker())
	}
}

func (e Restore) apply(s *State) error {
	h := e.Held
	w := s.workers.byKey[h.Worker]
	if s.operations.byName[h.Name] != nil || w != nil && w.duty != away {
		return nil
	}
	if w == nil {
		w = s.enroll(nil, &Report{Worker: h.Worker, ID: h.ID, Prefix: h.Prefix, Platform: h.WorkerPlatform, SizeClass: h.SizeClass})
		w.duty = away
		s.dispatch.serve(w, s.mayServe(w))
		s.timers.Set(&w.timer, s.now.Add(s.cfg.WorkerSlack))
	}
	a := actionOf(h.Digest)
	t := w.task
	if !w.pool.serves(h.Operation) || t != nil && t.action != a {
		return nil
	}
	if t != nil {
		s.join(t, s.operations.restore(h, &operation{}))
		return nil
	}
	t = &task{spec: h.Operation, action: a, queued: h.Queued, attempts: int32(h.Attempts), pool: w.pool}
	t.begin(w, h.Started)
	t.timer.Owner, t.item.Owner = t, t
	w.task = t
	s.inFlight.add(t)
	s.dispatch.executing++
	o := s.operations.restore(h, &t.alone)
	t.add(o)
	t.pool.cohort.charge(t)
	t.attach(o)
	w.pool.tree.Start(&t.item, &w.entry, s.now, w.queue.cost())
	s.operations.changed(o)
	return nil
}
