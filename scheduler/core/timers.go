package core

import "time"

// A clock has the time of the present event, and what is due later. It stands still between events.
type clock struct {
	now    time.Time
	timers timers
}

// A timer is when something is due. It lives inside its owner, which State.due
// knows what to do for; the zero timer, with the owner filled in, is not set.
type timer struct {
	owner any
	at    moment
	// order decides between equal times: first set, first due.
	order uint64
	// slot is the place in the heap plus one; 0 is not set.
	slot int
}

// A moment is a time as far from timers.zero: a third of the size, and nothing that
// the garbage collector has to follow.
type moment time.Duration

// timers is a heap of the timers that are set, with four below each. Most are put
// off again and again before they are due. So that costs nothing: a timer stays where
// it was until it comes first there.
type timers struct {
	heap  []alarm
	order uint64
	// zero is the time that the first timer was set for.
	zero time.Time
}

// An alarm is a timer with what it is ordered by, which thus needs no look at timers
// that are anywhere in memory: not after what the timer itself says.
type alarm struct {
	at    moment
	order uint64
	timer *timer
}

func (a *alarm) before(b *alarm) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	return a.order < b.order
}

func (h *timers) set(t *timer, at time.Time) {
	if h.zero.IsZero() {
		h.zero = at
	}
	h.order++
	t.at, t.order = moment(at.Sub(h.zero)), h.order
	a := alarm{t.at, t.order, t}
	switch {
	case t.slot == 0:
		h.heap = append(h.heap, a)
		h.fix(a, len(h.heap)-1)
	case a.at < h.heap[t.slot-1].at:
		h.fix(a, t.slot-1)
	}
}

func (h *timers) stop(t *timer) {
	if t.slot == 0 {
		return
	}
	i, last := t.slot-1, len(h.heap)-1
	moved := h.heap[last]
	h.heap[last] = alarm{}
	h.heap = h.heap[:last]
	t.slot = 0
	if i < last {
		h.fix(moved, i)
	}
}

// popDue returns and unsets the first timer that is due at now, or nil.
func (h *timers) popDue(now time.Time) *timer {
	t := h.first()
	if t == nil || h.when(t).After(now) {
		return nil
	}
	h.stop(t)
	return t
}

// shift puts everything off by d.
func (h *timers) shift(d time.Duration) {
	for i := range h.heap {
		a := &h.heap[i]
		a.at, a.timer.at = a.at+moment(d), a.timer.at+moment(d)
	}
}

// next returns when the first timer is due; zero if none is set.
func (h *timers) next() time.Time {
	if t := h.first(); t != nil {
		return h.when(t)
	}
	return time.Time{}
}

// when returns when a timer is due that is set, or was the last time.
func (h *timers) when(t *timer) time.Time { return h.zero.Add(time.Duration(t.at)) }

// first returns the timer that is due first; nil if none is set.
func (h *timers) first() *timer {
	for len(h.heap) > 0 {
		t := h.heap[0].timer
		if t.order == h.heap[0].order {
			return t
		}
		h.fix(alarm{t.at, t.order, t}, 0)
	}
	return nil
}

// fix puts a where it belongs, the place i being free.
func (h *timers) fix(a alarm, i int) {
	const below = 4
	for i > 0 {
		above := (i - 1) / below
		if !a.before(&h.heap[above]) {
			break
		}
		h.put(h.heap[above], i)
		i = above
	}
	for first := below*i + 1; first < len(h.heap); first = below*i + 1 {
		least := first
		for child := first + 1; child < min(first+below, len(h.heap)); child++ {
			if h.heap[child].before(&h.heap[least]) {
				least = child
			}
		}
		if !h.heap[least].before(&a) {
			break
		}
		h.put(h.heap[least], i)
		i = least
	}
	h.put(a, i)
}

func (h *timers) put(a alarm, i int) {
	h.heap[i] = a
	a.timer.slot = i + 1
}
