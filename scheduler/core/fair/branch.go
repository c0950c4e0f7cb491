package fair

import "math"

// priorityStep is how many steps of priority are a factor of two in share, and
// maxSteps where more of them stop to make a difference between branches.
const (
	priorityStep = 100
	maxSteps     = 20 * priorityStep
)

// A branch is a node of the trie. The root has no parent.
type branch struct {
	parent *branch
	key    string
	depth  int
	// order is the order of the last turns; before the first turn, the order of creation.
	order    uint64
	children map[string]*branch
	// refs counts the entries and the workers that are here, not below.
	refs int

	weight float64
	// running is the cost of all that runs below; the root does not count it.
	running int64
	// served is the branch's virtual time, clock that of its children: where the one was that
	// had a turn last before that, or that is gone after it.
	served, clock float64

	// backlogs are the kinds in which an item waits or a worker is idle, in this branch or below.
	// Most branches have one at most, which is here, beside what is read with it.
	backlogs []*backlog
	first    [1]*backlog
	own      backlog
}

// A backlog is the state of a branch for one kind of workers.
type backlog struct {
	branch *branch
	kind   uint32
	// up is the parent's backlog of the same kind.
	up *backlog

	// queued counts the entries that wait here and below.
	queued int
	// entries wait here; only those of a leaf are more than none. avoided has, by the group of
	// workers, those that avoid one, here and below: they are few, and mostly there are none.
	entries ranking
	avoided map[string]*avoided
	// byTurn are the children of which something may run, byBest those of which
	// something waits, by the best priority of that.
	byTurn, byBest heap

	// turn and rank are the backlog's own entries in up; 0 is none.
	turn, rank int32
	// best is the best priority of waiting items; factor is by what it and the weight multiply
	// running work; score is the product.
	best          int32
	factor, score float64
	grade         Grade

	// idle counts the workers that wait here and below; workers are those here, nearer
	// the children that have some.
	idle    int
	workers list[Worker]
	nearer  list[backlog]
	beside  links[backlog]
}

// entryByTurn returns the entry of a backlog among its siblings that have runnable items.
func (s *backlog) entryByTurn() entry {
	return entry{s.grade, s.score, s.branch.served, s.branch.order, s}
}

// entryByBest returns its entry among all in which something waits.
func (s *backlog) entryByBest() entry { return entry{score: float64(s.best), backlog: s} }

// share returns the factor by which a priority and a weight multiply running work.
func share(priority int32, weight float64) float64 {
	p := max(-maxSteps, min(maxSteps, priority))
	if p == 0 {
		return 1 / weight
	}
	return math.Exp2(float64(p)/priorityStep) / weight
}

// backlog returns the backlog of a kind, nil if there is none.
func (b *branch) backlog(kind uint32) *backlog {
	for _, s := range b.backlogs {
		if s.kind == kind {
			return s
		}
	}
	return nil
}

// makeBacklog returns the backlog of a kind, made if need be.
func (b *branch) makeBacklog(kind uint32) *backlog {
	s := b.backlog(kind)
	if s != nil {
		return s
	}
	if len(b.backlogs) == 0 {
		s, b.backlogs = &b.own, b.first[:0]
	} else {
		s = &backlog{}
	}
	*s = backlog{branch: b, kind: kind, byBest: heap{byRank: true}}
	if b.parent != nil {
		s.up = b.parent.makeBacklog(kind)
	}
	b.backlogs = append(b.backlogs, s)
	return s
}

// tidy drops a backlog that is of no use.
func (s *backlog) tidy() {
	if s.queued > 0 || s.idle > 0 {
		return
	}
	backlogs := s.branch.backlogs
	for i := range backlogs {
		if backlogs[i] == s {
			last := len(backlogs) - 1
			backlogs[i], backlogs[last] = backlogs[last], nil
			s.branch.backlogs = backlogs[:last]
			return
		}
	}
}

// head returns the best priority of waiting items; at least one waits.
func (s *backlog) head() int32 {
	if first := s.first(""); first != nil {
		return first.priority
	}
	return s.byBest.first().best
}

// reorder moves a backlog to its place among its siblings, after any change of waiting or running
// items below it. The root's backlogs have no siblings.
func (t *Tree) reorder(s *backlog) {
	up := s.up
	if up == nil {
		return
	}
	if s.queued == 0 {
		s.takeOut()
		return
	}
	if best := s.head(); s.rank == 0 || best != s.best {
		s.best, s.factor = best, share(best, s.branch.weight)
		if s.rank == 0 {
			s.branch.catchUp()
			up.byBest.push(s.entryByBest())
		} else {
			up.byBest.set(s.rank, s.entryByBest())
		}
	}
	s.score = float64(s.branch.running) * s.factor
	s.grade = Share
	if t.admit != nil && up.up == nil {
		s.grade = t.admit(s.kind, s.branch.key)
	}
	switch {
	case s.grade == Wait:
		s.takeTurn()
	case s.turn == 0:
		up.byTurn.push(s.entryByTurn())
	default:
		up.byTurn.set(s.turn, s.entryByTurn())
	}
}

// takeOut removes a backlog with nothing in it from its siblings.
func (s *backlog) takeOut() {
	s.takeTurn()
	if s.rank > 0 {
		s.up.byBest.remove(s.rank)
	}
}

// takeTurn removes a backlog from those that may run.
func (s *backlog) takeTurn() {
	if s.turn > 0 {
		s.up.byTurn.remove(s.turn)
	}
}

// catchUp moves a branch in which nothing waited to the time of its siblings. It does not matter
// whether the branch may have more running: so it does not matter either when its grade is asked
// for.
func (b *branch) catchUp() {
	for _, s := range b.backlogs {
		if s.rank > 0 {
			return
		}
	}
	b.served = max(b.served, b.parent.clock)
}

// ancestor returns the branch above b, or b, that is at a depth.
func (b *branch) ancestor(depth int) *branch {
	for b.depth > depth {
		b = b.parent
	}
	return b
}

// common returns the lowest branch that is above both, or one of them.
func common(a, b *branch) *branch {
	a, b = a.ancestor(b.depth), b.ancestor(a.depth)
	for a != b {
		a, b = a.parent, b.parent
	}
	return a
}
