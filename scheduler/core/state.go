package core

import (
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
)

// State is the whole memory of a scheduler. Step is the only way to change it. A State is not safe for
// concurrent use.
type State struct {
	cfg    Config
	now    time.Time
	timers timers

	operations map[string]*operation
	// completed are the operations that are done, the oldest first. expiry is when
	// the first of them is to be forgotten, or sooner.
	completed []kept
	expiry    timer
	// inFlight are the tasks by action, but for private ones that began here: those nobody joins, so that
	// they are apart from what an operation looks through.
	inFlight, private flights
	// launched is the number of the latest task.
	launched uint32
	// unmatched are the tasks that no worker can serve, in order. Between events
	// no queue matches them.
	unmatched fifo[*task]

	workers map[string]*worker
	pools   map[poolKey]*pool
	// connections are the workers by the connection that they last called over.
	connections map[uint64]map[*worker]struct{}
	// drains hold for the workers that they match, now and later.
	drains drains
	// cohorts are those of the configuration.
	cohorts []*cohort
	// settle runs from the first event until actions may be given to workers.
	settle timer
	// brought are results that nobody had asked for, by action, kept for a while;
	// broughtOrder has the oldest first.
	brought      map[action][]*brought
	broughtOrder fifo[*brought]
	// clients counts the operations of each client that are not done.
	clients map[string]int
	// queued and executing count tasks; queued includes unmatched ones.
	queued, executing int
	// ages numbers the operations.
	ages  uint64
	tally Tally
	// keys is for those of one operation at a time.
	keys []string

	// What the present event has produced so far.
	out   Out
	dirty []*operation
}

// NewState returns an empty State, or an error that names what is wrong in c.
func NewState(c Config) (*State, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &State{
		cfg:         c,
		operations:  map[string]*operation{},
		inFlight:    flights{},
		private:     flights{},
		workers:     map[string]*worker{},
		pools:       map[poolKey]*pool{},
		connections: map[uint64]map[*worker]struct{}{},
		brought:     map[action][]*brought{},
		clients:     map[string]int{},
	}
	s.settle.owner, s.expiry.owner = settling{}, expiring{}
	for _, q := range c.Quotas.Cohorts {
		s.cohorts = append(s.cohorts, newCohort(q, c.MaxPreemptions))
	}
	s.declare()
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
	if w := s.workers[worker]; w != nil && !s.timers.when(&w.timer).After(now) {
		s.timers.stop(&w.timer)
	}
}

// begin starts an event: moves the clock and settles what is due.
func (s *State) begin(now time.Time) {
	if s.now.IsZero() && s.cfg.Settle > 0 {
		s.timers.set(&s.settle, now.Add(s.cfg.Settle))
	}
	if now.After(s.now) {
		s.now = now
	}
	if next := s.timers.next(); !next.IsZero() && s.now.Sub(next) > maxLate {
		late := s.now.Sub(next) + s.cfg.SyncInterval
		s.timers.shift(late)
		s.keepLonger(late)
	}
	for t := s.timers.popDue(s.now); t != nil; t = s.timers.popDue(s.now) {
		t.owner.due(s)
	}
}

// end ends an event.
func (s *State) end() Out {
	for _, c := range s.cohorts {
		if c.stirred {
			s.offerIdle(c)
		}
	}
	out := s.out
	if n := len(s.dirty); n > 0 {
		out.Notices = make([]Status, 0, n)
	}
	for _, o := range s.dirty {
		o.dirty = false
		switch {
		case !o.gone():
			out.Notices = append(out.Notices, o.status())
		default: // who follows it is to know
			out.Notices = append(out.Notices, Status{Operation: o.spec, Rev: o.rev, Queued: o.queued})
		}
	}
	out.NextTick = s.timers.next()
	s.out, s.dirty = Out{}, s.dirty[:0]
	return out
}

func (e Submit) apply(s *State) error {
	spec, a := e.Operation, actionOf(e.Digest)
	t := s.joinable(spec, a)
	if err := s.admit(spec, t); err != nil {
		return fmt.Errorf("submit operation %s: %w", spec.Name, err)
	}
	switch b := s.broughtFor(spec, a); {
	case t != nil:
		s.tally.Joined++
		s.join(t, s.accept(spec, &operation{}))
	case b != nil:
		s.deliver(b, s.accept(spec, &operation{}))
	default:
		t = &task{spec: spec, action: a, queued: s.now}
		s.start(t, s.accept(spec, &t.alone))
	}
	return nil
}

// accept makes o the operation that spec asks for.
func (s *State) accept(spec *Operation, o *operation) *operation {
	s.ages++
	o.spec, o.queued, o.waiters, o.age = spec, s.now, 1, s.ages
	o.timer.owner = o
	s.operations[spec.Name] = o
	if spec.Client != "" {
		s.clients[spec.Client]++
	}
	return o
}

// admit returns why an operation is not accepted; t is the task that it would share.
func (s *State) admit(spec *Operation, t *task) error {
	if _, ok := s.operations[spec.Name]; ok {
		return ErrDuplicate
	}
	if n := s.clients[spec.Client]; n >= s.cfg.MaxPerClient {
		return fmt.Errorf("%w: %d of %s are not done", ErrClientFull, n, spec.Client)
	}
	if t != nil {
		return nil
	}
	if s.queued >= s.cfg.MaxQueued {
		return fmt.Errorf("%w: %d actions wait", ErrQueueFull, s.queued)
	}
	waiting := s.unmatched.len()
	if q := s.match(spec, spec.Size.Class, true); q != nil {
		waiting = q.waiting
	}
	if waiting >= s.cfg.MaxPerQueue {
		return fmt.Errorf("%w: %d actions wait for a worker with %s", ErrQueueFull, waiting, spec.Platform)
	}
	return nil
}

func (e Attach) apply(s *State) error {
	o, ok := s.operations[e.Name]
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
	if o, ok := s.operations[e.Name]; ok && o.waiters > 0 {
		o.waiters--
		if o.waiters == 0 && !o.done() {
			s.timers.set(&o.timer, s.now.Add(s.cfg.ClientGrace))
		}
	}
	return nil
}

func (e Cancel) apply(s *State) error {
	o, ok := s.operations[e.Name]
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
		if o := s.operations[name]; o != nil && !o.done() {
			s.abort(o, failure(codes.FailedPrecondition, "an operator has killed the operation: "+e.Reason))
			s.out.Killed++
		}
	}
	return nil
}

// abort ends an operation, and what runs for it alone.
func (s *State) abort(o *operation, resp *repb.ExecuteResponse) {
	t := o.task
	s.complete(o, resp)
	s.leave(t, o)
}

// Operation returns the state of an operation as of the last event.
func (s *State) Operation(name string) (Status, bool) {
	o, ok := s.operations[name]
	if !ok {
		return Status{}, false
	}
	return o.status(), true
}

// Counts returns the sizes as of the last event. It looks at every worker.
func (s *State) Counts() Counts {
	c := Counts{
		Queued:    s.queued - s.unmatched.len(),
		Unmatched: s.unmatched.len(),
		Executing: s.executing,
	}
	for _, w := range s.workers {
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

// An operation is one client's view of a task.
type operation struct {
	spec *Operation
	task *task
	// before and after are operations of the same task; see sharers.
	before, after *operation
	rev           uint64
	waiters       int32
	dirty         bool
	// restored: it was there before this State; see Restore.
	restored bool
	queued   time.Time
	// age is its number, entry its place in the tree that its task is in.
	age   uint64
	entry fair.Entry
	// timer runs while nobody waits, unless it is done.
	timer timer
	// last is the final state; it is set when task no longer is.
	last *Status
}

func (o *operation) done() bool { return o.last != nil }

// gone: nobody came back for it before it was done, or it was forgotten.
func (o *operation) gone() bool { return o.last == nil && o.task == nil }

func (o *operation) status() Status {
	if o.done() {
		return *o.last
	}
	st := Status{
		Operation: o.spec, Rev: o.rev, Stage: repb.ExecutionStage_QUEUED,
		Queued: o.queued, Started: o.task.started, Attempts: int(o.task.attempts),
	}
	if w := o.task.worker; w != nil {
		st.Stage, st.Worker, st.Away = repb.ExecutionStage_EXECUTING, w.key, w.away
		if w.queue != nil {
			st.Queue = w.queue.name
		}
	}
	return st
}

// due drops the operation: nobody came back for it.
func (o *operation) due(s *State) {
	delete(s.operations, o.spec.Name)
	s.discount(o)
	s.leave(o.task, o)
	o.task = nil
	s.changed(o)
}

// discount takes an operation that is over from those of its client.
func (s *State) discount(o *operation) {
	client := o.spec.Client
	if client == "" {
		return
	}
	if s.clients[client]--; s.clients[client] == 0 {
		delete(s.clients, client)
	}
}

// changed has the operation's waiters told at the end of the event.
func (s *State) changed(o *operation) {
	o.rev++
	if !o.dirty {
		o.dirty = true
		s.dirty = append(s.dirty, o)
	}
}

// complete sets an operation's last state. Its task is the caller's business.
func (s *State) complete(o *operation, resp *repb.ExecuteResponse) {
	st := o.status()
	s.changed(o)
	st.Stage, st.Rev, st.Ended, st.Response = repb.ExecutionStage_COMPLETED, o.rev, s.now, resp
	o.last, o.task = &st, nil
	s.discount(o)
	s.timers.stop(&o.timer)
	s.keep(o)
}
