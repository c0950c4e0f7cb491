package timer

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHeap compares a Heap with a list, while timers are set, postponed, brought forward, stopped
// and due. Their number goes up and down over the bounds of several pages.
func TestHeap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	timers := make([]Timer, 5*len(page{})/2)
	due := map[*Timer]time.Time{}
	var h Heap
	for step := range 16 {
		for range len(page{}) {
			x := &timers[random.IntN(len(timers))]
			if random.IntN(16) < step {
				h.Stop(x)
				delete(due, x)
				continue
			}
			due[x] = now.Add(time.Duration(random.IntN(1000)) * time.Second)
			h.Set(x, due[x])
		}
		if fault := h.Check(); fault != "" || h.Len() != len(due) {
			t.Fatalf("%d timers, want %d: %s", h.Len(), len(due), fault)
		}
		if spare := len(h.heap.pages) - (h.Len()+len(page{})-1)/len(page{}); spare < 0 || spare > 1 {
			t.Fatalf("%d pages for %d timers", len(h.heap.pages), h.Len())
		}
		now = now.Add(time.Duration(random.IntN(200)) * time.Second)
		var want, got []time.Time
		for x, at := range due {
			if !at.After(now) {
				want = append(want, at)
				delete(due, x)
			}
		}
		for x := h.PopDue(now); x != nil; x = h.PopDue(now) {
			got = append(got, h.When(x))
		}
		slices.SortFunc(want, time.Time.Compare)
		if !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("%d timers are due, want %d, or their order is wrong", len(got), len(want))
		}
	}
}
