package intake

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestTurns has a caller wait for a hundred turns. Another caller, who comes later, must get the
// next turn but one.
func TestTurns(t *testing.T) {
	turns := NewTurns(1)
	leave := takeTurn(t, turns, "greedy")
	done := make(chan string)
	take := func(caller string) {
		leave, err := turns.Take(t.Context(), caller)
		if err != nil {
			t.Error(err)
			return
		}
		done <- caller
		leave()
	}
	for range 100 {
		go take("greedy")
	}
	awaitWaiting(t, turns, "greedy", 100)
	go take("modest")
	awaitWaiting(t, turns, "modest", 1)
	leave()
	for n := range 101 {
		if caller := <-done; (caller == "modest") != (n == 1) {
			t.Errorf("turn %d is for the %s caller", n, caller)
		}
	}
	takeTurn(t, turns, "greedy")()
	nobodyWaits(t, turns)
}

// TestTurnsGivenUp: callers that stop waiting leave nothing behind.
func TestTurnsGivenUp(t *testing.T) {
	turns := NewTurns(1)
	leave := takeTurn(t, turns, "first")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	for range 2 {
		for _, caller := range []string{"first", "second"} {
			go func() {
				_, err := turns.Take(ctx, caller)
				gone <- err
			}()
			awaitWaiting(t, turns, caller, 1)
		}
		awaitWaiting(t, turns, "first", 1)
		cancel()
		for range 2 {
			if err := <-gone; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
	leave()
	for _, caller := range []string{"first", "second"} {
		takeTurn(t, turns, caller)()
	}
	nobodyWaits(t, turns)
}

// TestTurnGivenUpLate gives up a turn that has come meanwhile: it goes to another.
func TestTurnGivenUpLate(t *testing.T) {
	turns := NewTurns(1)
	mine := make(chan struct{})
	turns.waiting["gone"], turns.next = []chan struct{}{mine}, []string{"gone"}
	turns.giveLocked()
	<-mine
	turns.giveUp("gone", mine)
	takeTurn(t, turns, "other")()
}

func takeTurn(t *testing.T, turns *Turns, caller string) (leave func()) {
	t.Helper()
	leave, err := turns.Take(t.Context(), caller)
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

func nobodyWaits(t *testing.T, turns *Turns) {
	t.Helper()
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if len(turns.next) > 0 || len(turns.waiting) > 0 {
		t.Errorf("%v wait, and nobody does", turns.next)
	}
}

func awaitWaiting(t *testing.T, turns *Turns, caller string, want int) {
	t.Helper()
	for {
		turns.mu.Lock()
		n := len(turns.waiting[caller])
		turns.mu.Unlock()
		if n == want {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
