package core

import (
	"slices"
)

// What an event may do is bounded, so that none holds up the next: Config.StepEffort in looks at a
// task that stays where it is. What is left to do then is done by the events that come, the first
// of them at once. Meanwhile all of it is as if it had not begun: what waits where nobody serves
// any more is given to whoever comes back there, and what is to fail may be served.
const (
	// moveEffort is what a task costs that goes to another location, endEffort one that ends or whatever else is due.
	moveEffort, endEffort = 4, 16
)

// An effort is what the present event may still do.
type effort struct{ left int }

// spend takes so much, or what there is; false: there is none.
func (e *effort) spend(n int) bool {
	if e.left <= 0 {
		return false
	}
	e.left -= n
	return true
}

// sweep has all tasks of a lineup be looked at, and those moved for which another location is right now.
func (d *dispatcher) sweep(l *lineup) {
	switch {
	case l.count == 0:
	case l.pass != over:
		l.pass = again
	default:
		l.pass, l.cursor = underway, l.first
		d.sweeps = append(d.sweeps, l)
	}
	d.goOn()
}

// goOn makes passes go on, one after the other, as far as the event may.
func (d *dispatcher) goOn() {
	if d.sweeping {
		return // by what a pass does
	}
	d.sweeping = true
	for len(d.sweeps) > 0 && d.effort.left > 0 {
		l := d.sweeps[0]
		d.advance(l)
		switch {
		case l.cursor != nil:
		case l.pass == again && l.count > 0:
			l.pass, l.cursor = underway, l.first
		default:
			l.pass = over
			d.sweeps[0] = nil
			d.sweeps = d.sweeps[1:]
			if l.queue != nil {
				d.swept = append(d.swept, l.queue)
			}
		}
	}
	d.sweeping = false
}

// discardSwept forgets queues that were kept for what was still in them. It is for the end of an
// event, when nobody looks at them.
func (d *dispatcher) discardSwept() {
	for _, q := range d.swept {
		d.discard(q)
	}
	d.swept = nil
}

// advance looks at tasks from the cursor on and moves those that belong elsewhere, of a queue the oldest first.
func (d *dispatcher) advance(l *lineup) {
	var found []*task
	for l.cursor != nil && d.effort.spend(1) {
		t := l.cursor
		l.cursor = t.behind
		if !d.stays(t, l) {
			d.effort.spend(moveEffort)
			found = append(found, t)
		}
	}
	if l.queue != nil {
		slices.SortFunc(found, byAge)
	}
	for _, t := range found {
		if l.has(t) { // what was moved before it has not taken it along
			d.rematch(t)
		}
	}
}

// stays reports whether a task of a lineup is where it belongs.
func (d *dispatcher) stays(t *task, l *lineup) bool {
	if q := l.queue; q != nil {
		return t.takenBy(q) || d.pools.queueFor(t) == q
	}
	return d.pools.queueFor(t) == nil
}

// isBehind reports whether something is left to do of what has happened.
func (d *dispatcher) isBehind() bool {
	return len(d.sweeps) > 0 || len(d.settled) > 0 || d.reaches.isBehind() || len(d.stirred) > 0
}
