package fair

import "time"

// A Seat is the place of one worker in a tree. It lives inside its owner; the zero
// Seat, with owner and lane filled in, belongs to the root.
type Seat struct {
	// Owner is the caller's, Lane what the worker takes items from.
	Owner any
	Lane  uint32

	// home is where it was of use last; nil is the root.
	home *branch
	// since is, for each level down to home, when fairness sent the worker there
	// last. It is empty where no level is sticky.
	since []time.Time
	// next is what Next chose, kept the levels at which that was not fairness's
	// choice, one bit each.
	next *Item
	kept uint32
	// beside are the idle seats of the same branch and lane.
	beside links[Seat]
}

func (s *Seat) homeIn(t *Tree) *branch {
	if s.home == nil {
		return t.root
	}
	return s.home
}

// Next returns the item that the worker of a seat is to run, nil if there is none.
// At each level that is the branch whose turn it is or, if the worker may still be
// kept for it and the grades are the same, the one that it is in already.
func (t *Tree) Next(seat *Seat, now time.Time) *Item { return t.next(seat, nil, now) }

// NextOf is Next of what waits below the branch of the first level that has a key. It is nil
// if nothing of that may start.
func (t *Tree) NextOf(seat *Seat, key string, now time.Time) *Item {
	b := t.root.children[key]
	if b == nil {
		return nil
	}
	s := b.shelf(seat.Lane)
	if s == nil || s.turn == 0 {
		return nil
	}
	return t.next(seat, s, now)
}

// next is Next, on the first level of only if that is not nil.
func (t *Tree) next(seat *Seat, only *shelf, now time.Time) *Item {
	seat.next, seat.kept = nil, 0
	s := t.root.shelf(seat.Lane)
	if s == nil {
		return nil
	}
	home := seat.homeIn(t)
	for depth := range t.levels {
		if len(s.byTurn) == 0 {
			return nil
		}
		turn := s.byTurn[0].shelf
		if depth == 0 && only != nil {
			turn = only
		} else if home != nil && depth < home.depth {
			own := seat.keep(home.ancestor(depth+1), depth, t, now)
			if own != nil && own != turn && own.grade == turn.grade {
				turn = own
				seat.kept |= 1 << depth
			}
		}
		if home != nil && home.ancestor(depth+1) != turn.branch {
			home = nil
		}
		s = turn
	}
	if s.entries.len() == 0 {
		return nil
	}
	seat.next = s.entries.first().entry.item
	return seat.next
}

// keep returns the shelf of the worker's own branch if it may be kept there.
func (s *Seat) keep(own *branch, depth int, t *Tree, now time.Time) *shelf {
	sticky := t.levels[depth].Stickiness
	if sticky <= 0 || depth >= len(s.since) || now.Sub(s.since[depth]) >= sticky {
		return nil
	}
	if shelf := own.shelf(s.Lane); shelf != nil && shelf.turn > 0 {
		return shelf
	}
	return nil
}

// settle has a seat belong to home because its worker starts it. What Next kept
// stays kept since when it was; everything else is as fairness wants it, now.
func (s *Seat) settle(t *Tree, it *Item, home *branch, now time.Time) {
	kept := s.kept
	if s.next != it {
		kept = 0
	}
	s.next, s.kept = nil, 0
	t.move(s, home)
	if !t.sticky() {
		return
	}
	if s.since == nil {
		s.since = make([]time.Time, len(t.levels))
	}
	for depth := range s.since {
		if kept&(1<<depth) == 0 {
			s.since[depth] = now
		}
	}
}

func (t *Tree) sticky() bool {
	for _, l := range t.levels {
		if l.Stickiness > 0 {
			return true
		}
	}
	return false
}

// move has a seat belong to a branch. An idle one has left its list before.
func (t *Tree) move(s *Seat, home *branch) {
	old := s.home
	if old == home {
		return
	}
	home.refs++
	s.home = home
	if old != nil {
		t.release(old)
	}
}

// Leave forgets a worker, idle or not.
func (t *Tree) Leave(s *Seat) {
	t.Unwait(s)
	if s.home != nil {
		t.release(s.home)
	}
	s.home, s.since, s.next, s.kept = nil, nil, nil, 0
}

// Wait says that the worker of a seat is idle. It stays in its branch.
func (t *Tree) Wait(s *Seat) {
	shelf := s.homeIn(t).makeShelf(s.Lane)
	shelf.seats.pushBack(&s.beside, s)
	for ; shelf != nil; shelf = shelf.up {
		shelf.idle++
		if shelf.idle == 1 && shelf.up != nil {
			shelf.up.nearer.pushBack(&shelf.beside, shelf)
		}
	}
}

// Waits reports whether the worker of a seat is idle.
func (s *Seat) Waits() bool { return s.beside.owner != nil }

// Unwait says that the worker of a seat is not idle, or no longer.
func (t *Tree) Unwait(s *Seat) {
	if !s.Waits() {
		return
	}
	shelf := s.homeIn(t).shelf(s.Lane)
	shelf.seats.remove(&s.beside)
	for ; shelf != nil; shelf = shelf.up {
		shelf.idle--
		if shelf.idle == 0 && shelf.up != nil {
			shelf.up.nearer.remove(&shelf.beside)
		}
		shelf.tidy()
	}
}

// Nearest returns the idle seat of a lane that has the most keys in common with one
// of the entries of an item; nil if no worker of the lane is idle. Of those it is
// one that belongs to no deeper branch, if there is one, and that has waited
// longest.
func (t *Tree) Nearest(it *Item, lane uint32) *Seat {
	var near *shelf
	for x := it.entries.first; x != nil; x = x.next {
		for b := x.owner.leaf; b != nil; b = b.parent {
			if s := b.shelf(lane); s != nil && s.idle > 0 {
				if near == nil || b.depth > near.branch.depth {
					near = s
				}
				break
			}
		}
	}
	if near == nil {
		return nil
	}
	for near.seats.empty() {
		near = near.nearer.first.owner
	}
	return near.seats.first.owner
}
