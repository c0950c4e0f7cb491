package core

import (
	"time"
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
	// workers are those that call, dispatch gives them what waits, calls answers them, runs end
	// what they run.
	workers  *roster
	dispatch *dispatcher
	calls    *calls
	hedges   *hedges
	runs     *runs
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
	s := &State{cfg: c, clock: &clock{}, inFlight: newInFlight(&c), workers: newRoster()}
	s.operations = newOperations(s.clock, &s.cfg)
	s.orphans = newOrphanResults(s.clock, &s.cfg)
	s.calls = &calls{clock: s.clock, cfg: &s.cfg, replies: &s.out.Replies, wakes: &s.out.Wakes}
	s.dispatch = newDispatcher(s.clock, &s.cfg, s.operations, s.calls)
	s.hedges = &hedges{clock: s.clock, cfg: &s.cfg, operations: s.operations, calls: s.calls}
	s.runs = &runs{
		clock: s.clock, cfg: &s.cfg, operations: s.operations, inFlight: &s.inFlight, dispatch: s.dispatch,
		calls: s.calls, hedges: s.hedges, tally: &s.tally, ended: &s.out.Ended,
	}
	return s, nil
}

// Config returns the configuration with its defaults filled in.
func (s *State) Config() Config { return s.cfg }

// An Event is what a State is told: Submit, Attach, Detach and Cancel of operations, *Report, Hangup and Disconnect of
// workers, what operators order (Orders), Restore, or Tick.
type Event interface {
	// apply does what follows, and returns why the event is refused.
	apply(s *State) error
}

func (Tick) apply(*State) error { return nil }

// maxLate is how late the first event after a timer may be. Later than that, not
// the workers and clients were late but the scheduler slept or the clock jumped, so
// that nothing is held against them and everything has its time once more.
const maxLate = 20 * time.Second

// Step takes an event that happened at a time, and returns what has to be done, which the caller must do even when
// the event is refused. What was due before the event happens first. Time that goes backwards stands still, and
// time that leaps puts off what was due in between.
func (s *State) Step(now time.Time, e Event) Out {
	if r, ok := e.(*Report); ok {
		s.hear(now, r)
	}
	s.begin(now)
	err := e.apply(s)
	out := s.end()
	out.Err = err
	return out
}

// hear notes that a worker calls before it is looked at what is due: it is here, however late.
func (s *State) hear(now time.Time, r *Report) {
	if w := s.workers.byKey[r.Worker]; w != nil && !w.isTwin(r) && !s.timers.When(&w.timer).After(now) {
		s.timers.Stop(&w.timer)
	}
}

// begin starts an event: moves the clock and settles what is due.
func (s *State) begin(now time.Time) {
	if s.now.IsZero() && s.cfg.Settle > 0 {
		s.timers.Set(&s.dispatch.settle, now.Add(s.cfg.Settle))
	}
	if now.After(s.now) {
		s.now = now
	}
	if next := s.timers.Next(); !next.IsZero() && s.now.Sub(next) > maxLate {
		late := s.now.Sub(next) + s.cfg.SyncInterval
		s.timers.Shift(late)
		s.operations.keepLonger(late)
	}
	for t := s.timers.PopDue(s.now); t != nil; t = s.timers.PopDue(s.now) {
		s.due(t.Owner)
	}
}

// due does what is due for the owner of a timer.
func (s *State) due(owner any) {
	switch x := owner.(type) {
	case *operation:
		s.abandon(x)
	case *task:
		s.runs.overdue(x)
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
	out.NextTick = s.timers.Next()
	s.out = Out{}
	return out
}
