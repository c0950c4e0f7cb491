package timer

import (
	"fmt"
	"time"
)

// A Timer is the time when something is due. It lives inside its Owner; the zero Timer, with the
// Owner filled in, is not set.
type Timer struct {
	Owner any
	at    moment
	// order decides between equal times: first set, first due.
	order uint64
	// slot is the place in the heap plus one; 0 is not set.
	slot int
}

// IsSet reports whether t is set.
func (t *Timer) IsSet() bool { return t.slot > 0 }

// A moment is a time relative to Heap.zero: a third of the size, and without pointers for the
// garbage collector.
type moment time.Duration

// A Heap has the Timers that are set, as a tree with four children for each node. Most are
// postponed again and again before they are due. To make that cheap, a postponed timer keeps its
// position until it reaches the top.
type Heap struct {
	heap  alarms
	order uint64
	// zero is the time that the first timer was set for.
	zero time.Time
	// sure: the key of the first timer is its time.
	sure bool
}

// Set sets t to a time, whether it is set or not.
func (h *Heap) Set(t *Timer, at time.Time) {
	if h.zero.IsZero() {
		h.zero = at
	}
	h.order++
	t.at, t.order = moment(at.Sub(h.zero)), h.order
	h.sure = h.sure && t.slot != 1
	a := alarm{t.at, t.order, t}
	switch {
	case t.slot == 0:
		h.heap.grow()
		h.fix(a, h.heap.len()-1)
	case a.at < h.heap.at(t.slot-1).at:
		h.fix(a, t.slot-1)
	}
}

// Stop unsets t.
func (h *Heap) Stop(t *Timer) {
	if t.slot == 0 {
		return
	}
	i, moved := t.slot-1, h.heap.cut()
	t.slot = 0
	if i < h.heap.len() {
		h.fix(moved, i)
	}
}

// IsDue reports whether a timer is due at now.
func (h *Heap) IsDue(now time.Time) bool { return h.first() && !h.time(h.heap.at(0).at).After(now) }

// PopDue returns and unsets the first timer that is due at now, or nil.
func (h *Heap) PopDue(now time.Time) *Timer {
	if !h.IsDue(now) {
		return nil
	}
	t := h.heap.at(0).timer
	h.Stop(t)
	return t
}

// Shift postpones all timers by d.
func (h *Heap) Shift(d time.Duration) { h.zero = h.zero.Add(d) }

// Next returns when the first timer is due; zero if none is set.
func (h *Heap) Next() time.Time {
	if h.first() {
		return h.time(h.heap.at(0).at)
	}
	return time.Time{}
}

// When returns when a set timer is due, or when an unset one was last due.
func (h *Heap) When(t *Timer) time.Time { return h.time(t.at) }

func (h *Heap) time(at moment) time.Time { return h.zero.Add(time.Duration(at)) }

// Len returns the number of set timers.
func (h *Heap) Len() int { return h.heap.len() }

// Check returns an inconsistency of the heap, empty if there is none.
func (h *Heap) Check() string {
	for i := range h.heap.len() {
		if a := h.heap.at(i); a.timer.slot != i+1 || a.timer.at < a.at {
			return fmt.Sprintf("timer %d thinks it is %d", i, a.timer.slot)
		}
	}
	if h.sure && h.heap.len() > 0 && h.heap.at(0).timer.at != h.heap.at(0).at {
		return "the first timer is due at another time"
	}
	return ""
}

// first brings the timer that is due first to the top, with its time as its key; false if none is
// set. It reads no timer that it has read before.
func (h *Heap) first() bool {
	for h.heap.len() > 0 {
		if h.sure {
			return true
		}
		t := h.heap.at(0).timer
		if h.sure = t.order == h.heap.at(0).order; !h.sure {
			h.fix(alarm{t.at, t.order, t}, 0)
		}
	}
	return false
}

// fix puts a in its place; place i is free.
func (h *Heap) fix(a alarm, i int) {
	const below = 4
	for i > 0 {
		above := (i - 1) / below
		if !a.before(h.heap.at(above)) {
			break
		}
		h.put(*h.heap.at(above), i)
		i = above
	}
	for first := below*i + 1; first < h.heap.len(); first = below*i + 1 {
		least := first
		for child := first + 1; child < min(first+below, h.heap.len()); child++ {
			if h.heap.at(child).before(h.heap.at(least)) {
				least = child
			}
		}
		if !h.heap.at(least).before(&a) {
			break
		}
		h.put(*h.heap.at(least), i)
		i = least
	}
	h.put(a, i)
}

func (h *Heap) put(a alarm, i int) {
	*h.heap.at(i) = a
	a.timer.slot = i + 1
	h.sure = h.sure && i > 0
}
