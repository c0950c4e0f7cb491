package sweep

// Passes are the passes in progress, through Lines of one kind.
type Passes[T Item[T]] struct {
	// lines are their lines, with the current one first while going is true; ended are lines whose
	// pass has ended.
	lines, ended []*Line[T]
	going        bool
}

// Start schedules a look at all items of a line, by GoOn.
func (ps *Passes[T]) Start(l *Line[T]) {
	switch {
	case l.items.Len() == 0:
	case l.pass != over:
		l.pass = again
	default:
		l.pass, l.seen = underway, 0
		ps.lines = append(ps.lines, l)
	}
}

// GoOn continues passes, one after another, as far as the effort allows. advance handles the items
// that Look returns; it may start and continue passes itself.
func (ps *Passes[T]) GoOn(e *Effort, advance func(*Line[T])) {
	if ps.going {
		return // from within a pass
	}
	var none T
	ps.going = true
	for len(ps.lines) > 0 && e.Left > 0 {
		l := ps.lines[0]
		advance(l)
		switch {
		case l.next() != none:
		case l.pass == again && l.items.Len() > 0:
			l.pass, l.seen = underway, 0
		default:
			l.pass = over
			ps.lines[0] = nil
			ps.lines = ps.lines[1:]
			ps.ended = append(ps.ended, l)
		}
	}
	ps.going = false
}

// Look continues through a line as far as the effort allows, and returns the items that must move.
// Each look has the given cost.
func (l *Line[T]) Look(e *Effort, cost int, stays func(T) bool) (found []T) {
	var none T
	for t := l.next(); t != none && e.Spend(1); t = l.next() {
		l.seen = t.link().number
		if !stays(t) {
			e.Spend(cost)
			found = append(found, t)
		}
	}
	return found
}

// Ended returns the lines whose passes have ended since its last call.
func (ps *Passes[T]) Ended() []*Line[T] {
	ended := ps.ended
	ps.ended = nil
	return ended
}

// Lines returns the lines with passes. The result is read-only.
func (ps *Passes[T]) Lines() []*Line[T] { return ps.lines }

// IsBehind reports whether something is left to do.
func (ps *Passes[T]) IsBehind() bool { return len(ps.lines) > 0 }
