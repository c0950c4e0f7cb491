package intake

import (
	"context"
	"slices"
	"sync"
)

// Turns limit work that takes much memory to a few pieces at a time: waiting callers take turns. It
// may be used concurrently.
type Turns struct {
	mu   sync.Mutex
	free int // guarded by mu
	// waiting has the pieces of each caller, the oldest first; next are these callers in the order
	// of their turns. Guarded by mu.
	waiting map[string][]chan struct{}
	next    []string
}

// NewTurns returns Turns of so many pieces at a time.
func NewTurns(most int) *Turns { return &Turns{free: most, waiting: map[string][]chan struct{}{}} }

// Take waits for a turn of the caller, or the end of ctx. The caller calls leave when the piece is
// done.
func (t *Turns) Take(ctx context.Context, caller string) (leave func(), err error) {
	mine := make(chan struct{})
	t.mu.Lock()
	if len(t.waiting[caller]) == 0 {
		t.next = append(t.next, caller)
	}
	t.waiting[caller] = append(t.waiting[caller], mine)
	t.giveLocked()
	t.mu.Unlock()
	select {
	case <-mine:
		return t.leave, nil
	case <-ctx.Done():
		t.giveUp(caller, mine)
		return nil, ctx.Err()
	}
}

func (t *Turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.giveLocked()
}

// giveLocked gives free turns to the next callers.
func (t *Turns) giveLocked() {
	for t.free > 0 && len(t.next) > 0 {
		caller := t.next[0]
		t.next = t.next[1:]
		own := t.waiting[caller]
		close(own[0])
		t.free--
		if own = own[1:]; len(own) == 0 {
			delete(t.waiting, caller)
		} else {
			t.waiting[caller] = own
			t.next = append(t.next, caller)
		}
	}
}

// giveUp takes back a piece that waits, or its turn if that has come.
func (t *Turns) giveUp(caller string, mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.waiting[caller]
	i := slices.Index(own, mine)
	switch {
	case i < 0:
		t.free++
		t.giveLocked()
	case len(own) == 1:
		delete(t.waiting, caller)
		t.next = slices.DeleteFunc(t.next, func(c string) bool { return c == caller })
	default:
		t.waiting[caller] = slices.Delete(own, i, i+1)
	}
}
