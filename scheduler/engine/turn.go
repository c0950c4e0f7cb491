package engine

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// A Turn gives access to an Engine while its lock is held. It is valid only during the function
// that gets it.
type Turn struct {
	e   *Engine
	now time.Time
}

// Feed passes one event to the State and the journal. The function returns the result, for the
// Engine to carry out.
func (t Turn) Feed(ev event.Event) event.Out {
	t.e.journal.Event(t.now, ev)
	out := t.e.state.Step(t.now, ev)
	t.e.journal.Answer(out)
	return out
}

// View shows the State as it is now.
func (t Turn) View() *core.View { return t.e.state.View() }

// Follow fills m with the states of an operation until Unfollow.
func (t Turn) Follow(name string, m *Mailbox) { t.e.streams.add(name, m) }

// Unfollow undoes Follow.
func (t Turn) Unfollow(name string, m *Mailbox) { t.e.streams.remove(name, m) }

// Crowded returns an error if no further stream may follow an operation.
func (t Turn) Crowded(name string) error { return t.e.streams.crowded(name) }

// Hold gives a worker's call its number. answer gets the one Reply, and must have room for it.
func (t Turn) Hold(answer chan event.Reply) uint64 { return t.e.calls.hold(answer) }

// Drop forgets a call that no longer waits.
func (t Turn) Drop(call uint64) { t.e.calls.drop(call) }

// heldCalls are the calls of Synchronize that wait, each with room for its one reply.
type heldCalls struct {
	waiting map[uint64]chan event.Reply
	last    uint64
}

// hold gives a call that waits its number.
func (h *heldCalls) hold(c chan event.Reply) uint64 {
	h.last++
	h.waiting[h.last] = c
	return h.last
}

func (h *heldCalls) drop(call uint64) { delete(h.waiting, call) }

// answered returns the destinations of replies, in their order; nil for calls that have ended.
func (h *heldCalls) answered(replies []event.Reply) (calls []chan event.Reply) {
	for _, r := range replies {
		calls = append(calls, h.waiting[r.Call])
		h.drop(r.Call)
	}
	return calls
}
