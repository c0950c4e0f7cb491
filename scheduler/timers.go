package scheduler

import (
	"container/heap"
	"time"
)

// A timer is when something of State is due. It lives inside its owner; the
// zero timer, with the owner filled in, is not set.
type timer struct {
	owner interface{ due(s *State) }
	at    time.Time
	// order decides between equal times: first set, first due.
	order uint64
	// slot is the place in the heap plus one; 0 is not set.
	slot int
}

// timers is a heap of the timers that are set.
type timers struct {
	heap  []*timer
	order uint64
}

func (h *timers) set(t *timer, at time.Time) {
	h.order++
	t.at, t.order = at, h.order
	if t.slot > 0 {
		heap.Fix(h, t.slot-1)
		return
	}
	heap.Push(h, t)
}

func (h *timers) stop(t *timer) {
	if t.slot > 0 {
		heap.Remove(h, t.slot-1)
	}
}

// popDue returns and unsets the first timer that is due at now, or nil.
func (h *timers) popDue(now time.Time) *timer {
	if len(h.heap) == 0 || h.heap[0].at.After(now) {
		return nil
	}
	return heap.Pop(h).(*timer)
}

// shift puts everything off by d.
func (h *timers) shift(d time.Duration) {
	for _, t := range h.heap {
		t.at = t.at.Add(d)
	}
}

// next returns when the first timer is due; zero if none is set.
func (h *timers) next() time.Time {
	if len(h.heap) == 0 {
		return time.Time{}
	}
	return h.heap[0].at
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (h *timers) Len() int { return len(h.heap) }

func (h *timers) Less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	if a.at.Equal(b.at) {
		return a.order < b.order
	}
	return a.at.Before(b.at)
}

func (h *timers) Swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].slot, h.heap[j].slot = i+1, j+1
}

func (h *timers) Push(x any) {
	t := x.(*timer)
	h.heap = append(h.heap, t)
	t.slot = len(h.heap)
}

func (h *timers) Pop() any {
	last := len(h.heap) - 1
	t := h.heap[last]
	h.heap[last] = nil
	h.heap = h.heap[:last]
	t.slot = 0
	return t
}
