package core

import (
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
)

// State is the whole memory of a scheduler. Step is the only way to change it. A State is not safe for
// concurrent use.
type State struct {
	cfg Config
	*clock
	// operations are what clients want, inFlight the tasks that come of it, orphans what came of none.
	operations *operations
	inFlight   inFlight
	orphans    *orphanResults
	// workers are those that call, dispatch gives them what waits, calls answers them.
	workers  *roster
	dispatch *dispatcher
	calls    *calls
	tally    Tally

	// out is what the present event has produced so far, but for its notices.
	out Out
}

// NewState returns an empty State, or an error that names what is wrong in c.
func NewState(c Config) (*State, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &State{cfg: c, clock: &clock{}, inFlight: newInFlight(), workers: newRoster()}
	s.operations = newOperations(s.clock, &s.cfg)
	s.orphans = newOrphanResults(s.clock, &s.cfg)
	s.calls = &calls{clock: s.clock, cfg: &s.cfg, replies: &s.out.Replies}
	s.dispatch = newDispatcher(s.clock, &s.cfg, s.operations, s.calls)
	return s, nil
}

// Config returns the configuration with its defaults filled in.
func (s *State) Config() Config { return s.cfg }

// maxLate is how late the first event after a timer may be. Later than that, not
// the workers and clients were late but the scheduler slept or the clock jumped, so
// that nothing is held against them and everything has its time once more.
const maxLate = 20 * time.Second

// Step takes an event that happened at a time, and returns what has to be done, which the caller must do even when
// the event is refused. What was due before the event happens first. Time that goes backwards stands still, and
// time that leaps puts off what was due in between.
func (s *State) Step(now time.Time, e Event) Out {
	if r, ok := e.(*Report); ok {
		s.hear(now, r.Worker)
	}
	s.begin(now)
	err := e.apply(s)
	out := s.end()
	out.Err = err
	return out
}

// hear notes that a worker calls before it is looked at what is due: it is here, however late.
func (s *State) hear(now time.Time, worker string) {
	if w := s.workers.byKey[worker]; w != nil && !s.timers.when(&w.timer).After(now) {
		s.timers.stop(&w.timer)
	}
}

// begin starts an event: moves the clock and settles what is due.
func (s *State) begin(now time.Time) {
	if s.now.IsZero() && s.cfg.Settle > 0 {
		s.timers.set(&s.dispatch.settle, now.Add(s.cfg.Settle))
	}
	if now.After(s.now) {
		s.now = now
	}
	if next := s.timers.next(); !next.IsZero() && s.now.Sub(next) > maxLate {
		late := s.now.Sub(next) + s.cfg.SyncInterval
		s.timers.shift(late)
		s.operations.keepLonger(late)
	}
	for t := s.timers.popDue(s.now); t != nil; t = s.timers.popDue(s.now) {
		s.due(t.owner)
	}
}

// due does what is due for the owner of a timer.
func (s *State) due(owner any) {
	switch x := owner.(type) {
	case *operation:
		s.abandon(x)
	case *task:
		s.overdue(x)
	case *worker:
		s.silent(x)
	case *queue:
		s.rested(x)
	case *line:
		x.queue.pool.cohort.mark(x)
	case *mark:
		x.standBy()
	case *orphanResult:
		s.orphans.remove(x)
	case *operations:
		x.expire()
	case *dispatcher:
		s.settled()
	}
}

// end ends an event.
func (s *State) end() Out {
	for _, c := range s.dispatch.cohorts {
		if c.stirred {
			s.dispatch.offerIdle(c)
		}
	}
	out := s.out
	out.Notices = s.operations.notices()
	out.NextTick = s.timers.next()
	s.out = Out{}
	return out
}

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
	o.task = &task{worker: &worker{key: r.worker}, started: r.started, attempts: 1}
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

func (e Attach) apply(s *State) error {
	o, ok := s.operations.byName[e.Name]
	if !ok {
		return ErrUnknown
	}
	o.waiters++
	if !o.done() {
		s.timers.stop(&o.timer)
	}
	return nil
}

func (e Detach) apply(s *State) error {
	if o, ok := s.operations.byName[e.Name]; ok && o.waiters > 0 {
		o.waiters--
		if o.waiters == 0 && !o.done() {
			s.timers.set(&o.timer, s.now.Add(s.cfg.ClientGrace))
		}
	}
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

func (e Kill) apply(s *State) error {
	for _, name := range e.Names {
		if o := s.operations.byName[name]; o != nil && !o.done() {
			s.abort(o, failure(codes.FailedPrecondition, "an operator has killed the operation: "+e.Reason))
			s.out.Killed++
		}
	}
	return nil
}

// abort ends an operation, and what runs for it alone.
func (s *State) abort(o *operation, resp *repb.ExecuteResponse) {
	t := o.task
	s.operations.complete(o, resp)
	s.leave(t, o)
}

// Operation returns the state of an operation as of the last event.
func (s *State) Operation(name string) (Status, bool) {
	o, ok := s.operations.byName[name]
	if !ok {
		return Status{}, false
	}
	return o.status(), true
}

// Counts returns the sizes as of the last event. It looks at every worker.
func (s *State) Counts() Counts {
	c := Counts{
		Queued:    s.dispatch.queued - s.dispatch.unmatched.len(),
		Unmatched: s.dispatch.unmatched.len(),
		Executing: s.dispatch.executing,
	}
	for _, w := range s.workers.byKey {
		switch {
		case w.task != nil:
			c.Busy++
		case !w.serving:
			c.Draining++
		default:
			c.Idle++
		}
	}
	return c
}

// Tally returns what has happened up to the last event.
func (s *State) Tally() Tally { return s.tally }

// abandon drops an operation: nobody came back for it.
func (s *State) abandon(o *operation) {
	s.operations.drop(o)
	s.leave(o.task, o)
	o.task = nil
	s.operations.changed(o)
}
