package fair

import "time"

// A Worker is a tree's state of one worker. It lives inside its owner; the zero Worker, with owner
// and kind filled in, belongs to the root.
type Worker struct {
	// Owner is the caller's; Kind is the kind from which the worker takes items.
	Owner any
	Kind  uint32

	// home is the branch of its last item; nil is the root.
	home *branch
	// since is, for each level down to home, when fairness sent the worker there
	// last. It is empty where no level is sticky.
	since []time.Time
	// next is the choice of Next, kept the levels at which that was not fairness's choice, one bit
	// each.
	next *Item
	kept uint32
	// beside are the idle workers of the same branch and kind.
	beside links[Worker]
}

func (s *Worker) homeIn(t *Tree) *branch {
	if s.home == nil {
		return t.root
	}
	return s.home
}

// Next returns the next item for a worker, nil if there is none. At each level it takes the branch
// with the next turn or, if the worker may stay and the grades are equal, the worker's current
// branch.
func (t *Tree) Next(worker *Worker, now time.Time) *Item { return t.next(worker, nil, now) }

// NextOf is Next for items below the branch of the first level with a key. It is nil if none of
// these may start.
func (t *Tree) NextOf(worker *Worker, key string, now time.Time) *Item {
	s := t.startable(worker.Kind, key)
	if s == nil {
		return nil
	}
	return t.next(worker, s, now)
}

// startable returns the backlog of the branch of the first level with a key; nil if none of its items
// may start.
func (t *Tree) startable(kind uint32, key string) *backlog {
	t.refresh()
	b := t.root.children[key]
	if b == nil {
		return nil
	}
	if s := b.backlog(kind); s != nil && s.turn > 0 {
		return s
	}
	return nil
}

// next is Next, on the first level of only if that is not nil.
func (t *Tree) next(worker *Worker, only *backlog, now time.Time) *Item {
	worker.next, worker.kept = nil, 0
	t.refresh()
	s := t.root.backlog(worker.Kind)
	if s == nil {
		return nil
	}
	var home *branch // no other levels than sticky ones need it
	if t.sticky {
		home = worker.homeIn(t)
	}
	for depth := range t.levels {
		turn := s.byTurn.first()
		if turn == nil {
			return nil
		}
		if depth == 0 && only != nil {
			turn = only
		} else if home != nil && depth < home.depth {
			own := worker.keep(home.ancestor(depth+1), depth, t, now)
			if own != nil && own != turn && own.grade == turn.grade {
				turn = own
				worker.kept |= 1 << depth
			}
		}
		if home != nil && home.ancestor(depth+1) != turn.branch {
			home = nil
		}
		s = turn
	}
	if first := s.first(""); first != nil {
		worker.next = first.entry.item
	}
	return worker.next
}

// keep returns the backlog of the worker's own branch if it may be kept there.
func (s *Worker) keep(own *branch, depth int, t *Tree, now time.Time) *backlog {
	sticky := t.levels[depth].Stickiness
	if sticky <= 0 || depth >= len(s.since) || now.Sub(s.since[depth]) >= sticky {
		return nil
	}
	if backlog := own.backlog(s.Kind); backlog != nil && backlog.turn > 0 {
		return backlog
	}
	return nil
}

// settle moves a worker to home because its worker starts an item of it. Levels at which Next kept
// the worker keep their start times; at others they begin now.
func (s *Worker) settle(t *Tree, it *Item, home *branch, now time.Time) {
	kept := s.kept
	if s.next != it {
		kept = 0
	}
	s.next, s.kept = nil, 0
	t.move(s, home)
	if !t.sticky {
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

// move has a worker belong to a branch. An idle one has left its list before.
func (t *Tree) move(s *Worker, home *branch) {
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

// Leave removes a worker, idle or not.
func (t *Tree) Leave(s *Worker) {
	t.Unwait(s)
	if s.home != nil {
		t.release(s.home)
	}
	s.home, s.since, s.next, s.kept = nil, nil, nil, 0
}

// Wait marks a worker as idle. It stays in its branch.
func (t *Tree) Wait(s *Worker) {
	backlog := s.homeIn(t).makeBacklog(s.Kind)
	backlog.workers.pushBack(&s.beside, s)
	for ; backlog != nil; backlog = backlog.up {
		backlog.idle++
		if backlog.idle == 1 && backlog.up != nil {
			backlog.up.nearer.pushBack(&backlog.beside, backlog)
		}
	}
}

// Waits reports whether a worker is idle.
func (s *Worker) Waits() bool { return s.beside.owner != nil }

// Unwait marks a worker as not idle.
func (t *Tree) Unwait(s *Worker) {
	if !s.Waits() {
		return
	}
	backlog := s.homeIn(t).backlog(s.Kind)
	backlog.workers.remove(&s.beside)
	for ; backlog != nil; backlog = backlog.up {
		backlog.idle--
		if backlog.idle == 0 && backlog.up != nil {
			backlog.up.nearer.remove(&backlog.beside)
		}
		backlog.tidy()
	}
}

// Nearest returns the idle worker of a kind that has the most keys in common with an entry of an
// item; nil if no worker of the kind is idle. Among equals it prefers one that belongs to no deeper
// branch, and then the one that has waited longest.
func (t *Tree) Nearest(it *Item, kind uint32) *Worker {
	var near *backlog
	for x := it.entries.first; x != nil; x = x.next {
		for b := x.owner.leaf; b != nil; b = b.parent {
			if s := b.backlog(kind); s != nil && s.idle > 0 {
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
	return near.nearest()
}

// AnyIdle returns an idle worker of a kind; nil if there is none.
func (t *Tree) AnyIdle(kind uint32) *Worker {
	if s := t.root.backlog(kind); s != nil && s.idle > 0 {
		return s.nearest()
	}
	return nil
}

// nearest returns the idle worker of a backlog with some that belongs to no deeper branch, and has
// waited longest.
func (s *backlog) nearest() *Worker {
	for s.workers.empty() {
		s = s.nearer.first.owner
	}
	return s.workers.first.owner
}
