package core

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/orphan"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/roster"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// State is the complete state of a scheduler. Step is the only way to change it. A State is not
// safe for concurrent use.
type State struct {
	cfg tuning.Config
	*timer.Clock
	// operations are requests of clients, inFlight their tasks, orphans the tasks without
	// operations.
	operations *operations
	inFlight   inFlight
	orphans    *orphan.Results
	// workers are those that call, dispatch gives them tasks, calls answers them, runs end their
	// tasks.
	workers  *roster.Roster[*worker]
	drains   drain.List
	reviews  *reviews
	dispatch *dispatcher
	calls    *calls
	hedges   *hedges
	runs     *runs
	// overflows give queued tasks to larger workers.
	overflows *overflows
	// probation decides which workers get no tasks for a while.
	probation *probation
	tally     view.Tally
	// clients, reports and operators handle events.
	clients   *clients
	reports   *reports
	operators *operators

	// out is the outcome of the current event so far, except its notices.
	out event.Out
}

// NewState returns an empty State, or an error if c is invalid.
func NewState(c tuning.Config) (*State, error) {
	c, err := c.WithDefaults()
	if err != nil {
		return nil, err
	}
	s := &State{cfg: c, Clock: &timer.Clock{}, inFlight: newInFlight(&c), workers: roster.New[*worker]()}
	s.operations = newOperations(s.Clock, &s.cfg)
	s.orphans = orphan.New(s.Clock, c.ClientGrace, c.MaxCompleted)
	s.calls = &calls{Clock: s.Clock, cfg: &s.cfg, replies: &s.out.Replies, wakes: &s.out.Wakes, taken: &s.out.Taken}
	s.dispatch = newDispatcher(s.Clock, &s.cfg, s.operations, s.calls)
	s.reviews = &reviews{drains: &s.drains, dispatch: s.dispatch}
	s.overflows = &overflows{Clock: s.Clock, cfg: &s.cfg, dispatch: s.dispatch, reaches: s.dispatch.reaches}
	s.hedges = &hedges{Clock: s.Clock, cfg: &s.cfg, operations: s.operations, calls: s.calls}
	s.runs = &runs{
		Clock: s.Clock, cfg: &s.cfg, operations: s.operations, inFlight: &s.inFlight, dispatch: s.dispatch,
		calls: s.calls, hedges: s.hedges, tally: &s.tally, ended: &s.out.Ended, retries: &s.out.Retries, left: &s.out.Left,
	}
	s.probation = &probation{
		Clock: s.Clock, cfg: &s.cfg, dispatch: s.dispatch, tally: &s.tally,
		suspensions: &s.out.Suspensions,
	}
	s.clients = &clients{
		Clock: s.Clock, cfg: &s.cfg, operations: s.operations, inFlight: &s.inFlight, orphans: s.orphans,
		dispatch: s.dispatch, runs: s.runs, calls: s.calls, tally: &s.tally, left: &s.out.Left,
	}
	s.reports = &reports{
		Clock: s.Clock, cfg: &s.cfg, operations: s.operations, inFlight: &s.inFlight, orphans: s.orphans,
		workers: s.workers, reviews: s.reviews, dispatch: s.dispatch, calls: s.calls, hedges: s.hedges, runs: s.runs, clients: s.clients,
		probation:  s.probation,
		departures: &s.out.Departures,
	}
	s.operators = &operators{
		Clock: s.Clock, operations: s.operations, drains: &s.drains, reviews: s.reviews, dispatch: s.dispatch, clients: s.clients,
		killed: &s.out.Killed,
	}
	return s, nil
}

// Config returns the configuration with its defaults filled in.
func (s *State) Config() tuning.Config { return s.cfg }

// maxLate is how late the first event after a timer may be. Later than that, not
// the workers and clients were late but the scheduler slept or the clock jumped, so
// that nothing is held against them and everything has its time once more.
const maxLate = 20 * time.Second

// Step handles an event that happened at a time, and returns the effects, which the caller must
// carry out even when the event is refused. Timers that were due before the event are handled
// first. If time goes backwards, it stands still; if it leaps, timers in between are postponed.
func (s *State) Step(now time.Time, e event.Event) event.Out {
	if r, ok := e.(*event.Report); ok && s.Timers.IsDue(now) {
		s.reports.hear(now, r)
	}
	s.begin(now)
	err := s.apply(e)
	out := s.end()
	out.Err = err
	return out
}

// apply executes an event, and returns why it is refused.
func (s *State) apply(e event.Event) error {
	switch e := e.(type) {
	case event.Submit:
		return s.clients.submit(e)
	case event.Attach:
		return s.clients.attach(e)
	case event.Detach:
		s.clients.detach(e)
	case event.Cancel:
		return s.clients.cancel(e)
	case *event.Report:
		return s.reports.report(e)
	case event.Hangup:
		s.reports.hangup(e)
	case event.Disconnect:
		s.reports.disconnect(e)
	case event.Restore:
		s.reports.restore(e)
	case event.Settle:
		s.reports.settleNow()
	case event.Tick:
	default:
		return s.operators.order(e)
	}
	return nil
}

// begin starts an event: it moves the clock and handles due timers.
func (s *State) begin(now time.Time) {
	before := s.Now
	if now.After(s.Now) {
		s.Now = now
	}
	if before.IsZero() {
		s.dispatch.begun = timer.After(s.Awake(), s.cfg.Settle)
		if s.cfg.Settle > 0 {
			s.Timers.Set(&s.dispatch.settle, s.Now.Add(s.cfg.Settle))
		}
	}
	if next := s.Timers.Next(); !next.IsZero() {
		if next.Before(before) {
			next = before // it was due, and State had other things to do
		}
		if late := s.Now.Sub(next); late > maxLate {
			late += s.cfg.SyncInterval
			s.PutOff(late)
			s.operations.keepLonger(late)
		}
	}
	s.dispatch.effort.Left, s.runs.lacks = s.cfg.StepEffort, nil
	for t := s.Timers.PopDue(s.Now); t != nil; t = s.Timers.PopDue(s.Now) {
		s.due(t.Owner)
		if s.dispatch.effort.Spend(endEffort); s.dispatch.effort.Left <= 0 {
			break
		}
	}
}

// due handles a timer of its owner.
func (s *State) due(owner any) {
	switch x := owner.(type) {
	case *operation:
		s.clients.abandon(x)
	case *task:
		s.runs.due(x)
	case *worker:
		s.reports.silent(x)
	case *queue:
		s.reports.rested(x)
	case *program:
		s.probation.over(x)
	case *preemption.Line:
		e := &s.dispatch.effort
		e.Spend(moveEffort * x.Ripen(max(1, e.Left/moveEffort)))
	case *preemption.Mark:
		x.StandBy()
	case *absence:
		s.runs.absent(x.queue)
	case *overflow:
		s.dispatch.reaches.mark(x.queue)
	case *unwantedRuns:
		s.calls.claimSpares(x.queue)
	case *orphan.Result:
		s.orphans.Remove(x)
	case *operations:
		x.expire()
	case *dispatcher:
		s.reports.settled()
	}
}

// end ends an event.
func (s *State) end() event.Out {
	s.dispatch.pools.stopOverMax(&s.dispatch.effort)
	s.dispatch.goOn()
	s.reviews.goOn()
	s.dispatch.offerReserved()
	s.dispatch.offerStirred()
	s.overflows.settle()
	s.dispatch.discardSwept()
	out := s.out
	out.Notices = s.operations.notices()
	if out.NextTick = s.Timers.Next(); s.isBehind() {
		out.NextTick = s.Now
	}
	s.out = event.Out{}
	return out
}

// isBehind reports whether work of earlier events is left.
func (s *State) isBehind() bool { return s.dispatch.isBehind() || s.reviews.isBehind() }
