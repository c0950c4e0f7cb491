package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// TestRandomRaces runs actions on two workers at once, with random events for workers and clients.
// After each event the state must be consistent, and in the end it must be empty.
func TestRandomRaces(t *testing.T) {
	raced := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		h := &history{t: t, calls: map[uint64]string{}, actions: map[string]string{}, lastOf: map[string]uint64{}}
		h.state = must(NewState(tuning.Config{MaxAttempts: 2, KeepCompleted: time.Second, ClientGrace: 3 * time.Second}))
		workers := map[string]string{"s1": "class=1", "s2": "class=1", "l1": "class=3", "l2": "class=3"}
		for at, ops := time.Duration(0), 0; at < 5*time.Minute; at += time.Duration(r.IntN(3)) * time.Second {
			now := epoch.Add(at)
			for !h.next.IsZero() && !h.next.After(now) {
				h.event(h.next, "tick", nil)
			}
			switch r.IntN(12) {
			case 0, 1:
				ops++
				h.event(now, "submit", []string{
					fmt.Sprintf("op%d", ops), fmt.Sprintf("action%d",
						r.IntN(4)), "size=1,1s,,hedge", []string{"private", "client=c"}[r.IntN(2)],
				})
			case 2:
				h.event(now, []string{"cancel", "detach", "attach"}[r.IntN(3)],
					[]string{fmt.Sprintf("op%d", r.IntN(ops+1))})
			default:
				name := []string{"s1", "s2", "l1", "l2"}[r.IntN(4)]
				h.event(now, "sync", append([]string{name}, append(h.something(r, name), workers[name])...))
			}
			for _, w := range h.state.workers.All() {
				if w.task != nil && w.task.race() != nil {
					raced++
				}
			}
		}
		for range 10_000 {
			if h.next.IsZero() {
				break
			}
			h.event(h.next, "tick", nil)
		}
		if s := h.state; s.workers.Len() > 0 || len(s.operations.byName) > 0 ||
			s.Timers.Len() > 0 || s.dispatch.pools.Len() > 0 {
			t.Errorf("seed %d: this is left:\n%s", seed, s.View().Dump())
		}
	}
	if raced < 1000 {
		t.Errorf("there were races after %d events only", raced)
	}
}

// something returns a random next report of a worker.
func (h *history) something(r *rand.Rand, name string) []string {
	w := h.state.workers.Get(name)
	if w == nil || w.task == nil && w.stops().Key == (request.Key{}) || r.IntN(12) == 0 {
		return []string{"idle"}
	}
	a := w.stops().Key
	if w.task != nil {
		a = w.task.action
	}
	does := h.actions[a.String()]
	switch r.IntN(10) {
	case 0:
		return []string{"completed", does, "exit=0"}
	case 1:
		return []string{"completed", does, "exit=1"}
	case 2:
		return []string{"completed", does, "error=away"}
	case 3:
		return []string{"executing", does, "drain"}
	}
	return []string{"executing", does, "running"}
}
