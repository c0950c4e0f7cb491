package scheduler

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/journal"
)

// An engine drives a State: it has the lock and the clock, tells the State and the journal of events, and does what
// comes out: streams and held calls itself, the rest by concluded.
type engine struct {
	journal *journal.Journal
	// concluded is told of each Out, without the lock. It is set before the first event.
	concluded func(core.Out)
	// stopped is closed when run returns.
	stopped chan struct{}
	// alarm has a value when State's next tick has come before the one that run waits for.
	alarm chan struct{}

	mu sync.Mutex
	// All of it is guarded by mu.
	state   *core.State
	streams streams
	calls   heldCalls
	// tick is when State wants to be called next, awaited when run will do so; zero: never.
	tick, awaited time.Time
}

func newEngine(state *core.State, j *journal.Journal) *engine {
	return &engine{
		journal: j, state: state, concluded: func(core.Out) {},
		stopped: make(chan struct{}), alarm: make(chan struct{}, 1),
		streams: streams{}, calls: heldCalls{waiting: map[uint64]chan core.Reply{}},
	}
}

// run lets time pass until ctx ends. Then it answers all who wait, and accepts nothing more.
func (e *engine) run(ctx context.Context) {
	defer e.stop()
	defer e.step(func(now time.Time) core.Out {
		out := e.feedLocked(now, core.Tick{})
		e.journal.End(now, e.state)
		return out
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			e.feed(core.Tick{})
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

// stop answers all who wait. From then on nothing is accepted: a result of which a worker was told that
// it may forget it has been delivered.
func (e *engine) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.stopped)
	e.streams.close()
}

// errStopped is what calls get when the scheduler ends.
func errStopped() error {
	return status.Error(codes.Unavailable, "the scheduler is shutting down")
}

func (e *engine) isStopped() bool {
	select {
	case <-e.stopped:
		return true
	default:
		return false
	}
}

// look calls see with the State as it is now, under the lock.
func (e *engine) look(see func(*core.View)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	see(e.state.View())
}

// feed tells the state of one event and then does what it says.
func (e *engine) feed(event core.Event) (out core.Out) {
	e.step(func(now time.Time) core.Out {
		out = e.feedLocked(now, event)
		return out
	})
	return out
}

// feedLocked tells the state, and the journal, of one event. The caller does what it says.
func (e *engine) feedLocked(now time.Time, event core.Event) core.Out {
	e.journal.Event(now, event)
	out := e.state.Step(now, event)
	e.journal.Answer(out)
	return out
}

// step has an event happen under the lock and then, without the lock, does what the state says.
func (e *engine) step(event func(now time.Time) core.Out) {
	e.mu.Lock()
	out := event(time.Now())
	e.tick = out.NextTick
	answered := e.calls.answered(out.Replies)
	for i := range out.Notices {
		e.streams.tell(&out.Notices[i])
	}
	// To be called too early does no harm, and costs less than to wake run at each event.
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

// accept is step for an event that begins something. False: the engine has stopped, and nothing was done.
func (e *engine) accept(event func(now time.Time) core.Out) (accepted bool) {
	e.step(func(now time.Time) core.Out {
		if e.isStopped() {
			return core.Out{NextTick: e.tick}
		}
		accepted = true
		return event(now)
	})
	return accepted
}

// heldCalls are the calls of Synchronize that wait, each with room for its one reply.
type heldCalls struct {
	waiting map[uint64]chan core.Reply
	last    uint64
}

// hold gives a call that waits its number.
func (h *heldCalls) hold(c chan core.Reply) uint64 {
	h.last++
	h.waiting[h.last] = c
	return h.last
}

func (h *heldCalls) drop(call uint64) { delete(h.waiting, call) }

// answered returns where replies go, in their order; nil where nobody waits any more.
func (h *heldCalls) answered(replies []core.Reply) (calls []chan core.Reply) {
	for _, r := range replies {
		calls = append(calls, h.waiting[r.Call])
		h.drop(r.Call)
	}
	return calls
}
