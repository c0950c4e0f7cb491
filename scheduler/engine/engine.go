package engine

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/journal"
)

// An Engine drives a State: it has the lock and the clock, and passes events to the State and the
// journal. It handles the results for streams and held calls itself, and passes the rest to a
// function.
type Engine struct {
	journal *journal.Journal
	// concluded gets each Out, without the lock. It is set before the first event.
	concluded func(event.Out)
	// stopped is closed when Run returns.
	stopped chan struct{}
	// alarm has a value if State's next tick is now earlier than the one that Run waits for.
	alarm chan struct{}

	mu sync.Mutex
	// All of it is guarded by mu.
	state   *core.State
	streams streams
	calls   heldCalls
	// tick is when State wants the next call, awaited when Run will make it; zero: never.
	tick, awaited time.Time
}

// New returns an Engine for a State, which only the Engine uses from then on. j may be nil.
func New(state *core.State, j *journal.Journal) *Engine {
	return &Engine{
		journal: j, state: state, concluded: func(event.Out) {},
		stopped: make(chan struct{}), alarm: make(chan struct{}, 1),
		streams: streams{}, calls: heldCalls{waiting: map[uint64]chan event.Reply{}},
	}
}

// Conclude makes the Engine pass each Out to f, without the lock, after it has served streams and
// held calls. Call it once, before the first event.
func (e *Engine) Conclude(f func(event.Out)) { e.concluded = f }

// Run passes time to the State until ctx ends. Then it answers all waiting calls, and accepts no
// more.
func (e *Engine) Run(ctx context.Context) {
	defer e.stop()
	defer e.Step(func(t Turn) event.Out {
		out := t.Feed(event.Tick{})
		e.journal.End(t.now, e.state)
		return out
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			e.Feed(event.Tick{})
		case <-e.alarm:
		}
		e.mu.Lock()
		next := e.tick
		e.awaited = next
		e.mu.Unlock()
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// stop answers all waiting calls. From then on nothing is accepted: a result that a worker may
// forget has been delivered.
func (e *Engine) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.stopped)
	e.streams.close()
}

// ErrStopped is the error of calls when the scheduler ends, a gRPC status.
func ErrStopped() error {
	return status.Error(codes.Unavailable, "the scheduler is shutting down")
}

// Stopped returns a channel that is closed when the Engine accepts no more.
func (e *Engine) Stopped() <-chan struct{} { return e.stopped }

// IsStopped reports whether the Engine accepts no more.
func (e *Engine) IsStopped() bool {
	select {
	case <-e.stopped:
		return true
	default:
		return false
	}
}

// Look calls see with the present State, under the lock.
func (e *Engine) Look(see func(*core.View)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	see(e.state.View())
}

// Check returns an inconsistency of the State, empty if there is none; see core.State.Check. It is
// for tests.
func (e *Engine) Check() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.Check()
}

// lookBatch is how many operations are copied under the lock at a time at most, which takes about a
// millisecond, and firstBatch how many at first: who looks for few may have found them then.
const lookBatch, firstBatch = 10_000, 500

// EachOperation calls do, without the lock, with the unfinished operations that p matches (nil:
// all) and whose numbers are above a given one, in order, until do returns false. It may omit
// operations that end meanwhile, and includes new ones.
func (e *Engine) EachOperation(p *pattern.Pattern, after uint64, do func(number uint64, op *request.Operation) bool) {
	type numbered struct {
		number uint64
		view.Entry
	}
	var last uint64
	e.Look(func(v *core.View) { last = v.Latest() })
	var seen []numbered
	for batch := firstBatch; ; batch = min(2*batch, lookBatch) {
		seen = seen[:0]
		e.Look(func(v *core.View) {
			for number, entry := range v.Entries(p, after) {
				if number > last || len(seen) == batch {
					break
				}
				seen = append(seen, numbered{number, entry})
			}
		})
		for _, x := range seen {
			if (p == nil || p.Match(x.Attribute)) && !do(x.number, x.Operation) {
				return
			}
		}
		if len(seen) < batch {
			return
		}
		after = seen[len(seen)-1].number
	}
}

// Feed passes one event to the State and carries out the result.
func (e *Engine) Feed(ev event.Event) (out event.Out) {
	e.Step(func(t Turn) event.Out {
		out = t.Feed(ev)
		return out
	})
	return out
}

// Under calls do under the lock. Results of the events in it are dropped: it is for the time before
// the first call.
func (e *Engine) Under(do func(Turn)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do(Turn{e, time.Now()})
}

// Step applies an event under the lock and then, without the lock, carries out the State's result.
func (e *Engine) Step(do func(Turn) event.Out) {
	e.mu.Lock()
	out := do(Turn{e, time.Now()})
	e.tick = out.NextTick
	answered := e.calls.answered(out.Replies)
	for i := range out.Notices {
		e.streams.tell(&out.Notices[i])
	}
	// To be called too early does no harm, and costs less than to wake Run at each event.
	early := !e.tick.IsZero() && (e.awaited.IsZero() || e.tick.Before(e.awaited))
	e.mu.Unlock()

	if early {
		select {
		case e.alarm <- struct{}{}:
		default:
		}
	}
	for i, c := range answered {
		if c != nil {
			c <- out.Replies[i]
		}
	}
	e.concluded(out)
}

// Accept is Step for an event that begins something. False: the Engine has stopped, and nothing was
// done.
func (e *Engine) Accept(do func(Turn) event.Out) (accepted bool) {
	e.Step(func(t Turn) event.Out {
		if e.IsStopped() {
			return event.Out{NextTick: e.tick}
		}
		accepted = true
		return do(t)
	})
	return accepted
}
