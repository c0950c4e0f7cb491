package fair

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// MaxLevels bounds the depth of a tree.
const MaxLevels = 20

// A Level is one level of a tree, below the one before it.
type Level struct {
	// Stickiness is how long a worker may stay with a branch of this level although another one has
	// its turn, counted from when fairness last assigned it there. Zero: it may not stay.
	Stickiness time.Duration
	// Weights by key; others weigh 1. They are above zero.
	Weights map[string]float64
}

// A Grade says whether a branch of the first level may run more.
type Grade int8

// The grades.
const (
	// Wait: nothing below it may start.
	Wait Grade = iota
	// Share: items below it may start in their turn.
	Share
	// First: it goes before all branches with Share.
	First
)

// Options configure a Tree. The zero value is one queue.
type Options struct {
	// Levels are the levels of the trie, the outermost first.
	Levels []Level
	// Admit returns the grade of a branch of the first level for a kind of workers. The tree calls
	// it whenever waiting or running items below the branch have changed. If the grade of a key
	// changes for another reason, the owner of Admit notes that in Changes. Admit must not call the
	// tree. Nil: all branches have Share.
	Admit func(kind uint32, key string) Grade
	// Changes may be nil.
	Changes *Changes
	// Avoid returns the group of workers that should not get an item (Search.For); empty: all may.
	// It must not change while the item waits. Nil: no item avoids any.
	Avoid func(*Item) string
}

// A Tree holds waiting and running items. The owner of entries, items and workers uses each with
// one tree only, from its Attach (Wait, Start) to its Detach (Leave).
type Tree struct {
	levels []Level
	// sticky: a level is.
	sticky bool
	admit  func(kind uint32, key string) Grade
	avoid  func(*Item) string
	root   *branch
	// changes are Options.Changes, known their number at the last refresh.
	changes *Changes
	known   uint64
	// made counts branches and turns.
	made uint64
	// moved is for the item that is being started.
	moved []moved
}

// New returns an empty tree. It panics if there are more than MaxLevels levels or a weight is not
// above zero: the reader of the configuration must reject these first.
func New(o Options) *Tree {
	if len(o.Levels) > MaxLevels {
		panic(fmt.Sprintf("fair: %d levels", len(o.Levels)))
	}
	t := &Tree{
		levels: o.Levels, admit: o.Admit, avoid: o.Avoid, changes: o.Changes, root: &branch{weight: 1},
	}
	for _, l := range o.Levels {
		t.sticky = t.sticky || l.Stickiness > 0
		for key, w := range l.Weights {
			if !(w > 0) {
				panic(fmt.Sprintf("fair: %q weighs %v", key, w))
			}
		}
	}
	return t
}

// branch returns the leaf of a path, made if need be. A path has one key for each
// level.
func (t *Tree) branch(path []string) *branch {
	if len(path) != len(t.levels) {
		panic(fmt.Sprintf("fair: a path of %d keys in a tree of %d levels", len(path), len(t.levels)))
	}
	b := t.root
	for _, key := range path {
		child := b.children[key]
		if child == nil {
			t.made++
			key := strings.Clone(key) // the branch may outlive the string that contains the key
			child = &branch{parent: b, key: key, depth: b.depth + 1, order: t.made, weight: 1}
			if w, ok := t.levels[b.depth].Weights[key]; ok {
				child.weight = w
			}
			if b.children == nil {
				b.children = map[string]*branch{}
			}
			b.children[key] = child
		}
		b = child
	}
	return b
}

// release drops one of a branch's refs, and branches that are no longer used.
func (t *Tree) release(b *branch) {
	b.refs--
	for b != t.root && b.refs == 0 && len(b.children) == 0 {
		delete(b.parent.children, b.key)
		// The branch may come back, and its turns count: otherwise a branch that comes and goes
		// would get ahead of one that waits.
		b.parent.clock = max(b.parent.clock, b.served)
		b = b.parent
	}
}

// Attach adds an entry to an item, because another operation wants it. If the item waits, it now
// also waits there. If it runs, the branches above pay for it from now on, and its worker belongs
// to all of its operations, as after Start.
func (t *Tree) Attach(e *Entry, it *Item, path []string, r Rank) {
	leaf := t.branch(path)
	leaf.refs++
	alone := it.entries.empty()
	if it.stage == running && !alone && it.charges == nil {
		it.charges = map[*branch]int{}
		for b := it.entries.first.owner.leaf; b != t.root; b = b.parent {
			it.charges[b] = 1
		}
	}
	e.leaf, e.item = leaf, it
	e.priority, e.expected, e.age = r.Priority, r.Expected, r.Age
	it.entries.pushBack(&e.others, e)
	switch it.stage {
	case waiting:
		t.enqueue(e)
	case running:
		t.charge(e)
		if worker := it.worker; worker != nil && alone {
			t.move(worker, leaf)
		} else if worker != nil {
			t.move(worker, common(worker.homeIn(t), leaf))
		}
	}
}

// Detach removes an entry from its item, which continues without it, even if that was the last one.
// Nothing happens if the entry is in no tree.
func (t *Tree) Detach(e *Entry) {
	it := e.item
	if it == nil {
		return
	}
	switch it.stage {
	case waiting:
		t.dequeue(e)
	case running:
		t.discharge(e)
	}
	it.entries.remove(&e.others)
	leaf := e.leaf
	*e = Entry{}
	t.release(leaf)
}

// Park makes an entry keep its rank but have no turns, because no client waits for its operation.
// Its item still has the turns of its other entries. Nothing happens if the entry is in no tree.
func (t *Tree) Park(e *Entry) {
	if e.item == nil || e.parked {
		return
	}
	if e.item.stage == waiting {
		t.dequeue(e)
	}
	e.parked = true
}

// Unpark undoes Park.
func (t *Tree) Unpark(e *Entry) {
	if e.item == nil || !e.parked {
		return
	}
	e.parked = false
	if e.item.stage == waiting {
		t.enqueue(e)
	}
}

// Enqueue puts an item that neither waits nor runs into the queue of a kind. A returned item goes
// before all others of its priority.
func (t *Tree) Enqueue(it *Item, kind uint32, returned bool) {
	it.must(apart)
	it.stage, it.kind = waiting, kind
	for x := it.entries.first; x != nil; x = x.next {
		x.owner.returned = x.owner.returned || returned
		t.enqueue(x.owner)
	}
}

// Dequeue removes a waiting item from its queue.
func (t *Tree) Dequeue(it *Item) {
	it.must(waiting)
	for x := it.entries.first; x != nil; x = x.next {
		t.dequeue(x.owner)
	}
	it.stage = apart
}

// Start makes a worker run an item that does not run yet. The branches above its entries pay its
// cost until Finish. The worker moves to the lowest branch above all of the entries; without
// entries it stays.
func (t *Tree) Start(it *Item, worker *Worker, now time.Time, cost int64) {
	if it.stage == running {
		it.must(apart)
	}
	waited := it.stage == waiting
	it.stage, it.cost, it.worker = running, cost, worker
	first := it.entries.first
	if first == nil {
		return
	}
	if first != it.entries.last {
		it.charges = map[*branch]int{}
	}
	home := first.owner.leaf
	for x := first; x != nil; x = x.next {
		if waited && !x.owner.parked {
			t.start(x.owner)
		}
		home = common(home, x.owner.leaf)
	}
	for x := first; x != nil; x = x.next { // after those with the next turns
		if !waited || x.owner.parked {
			t.charge(x.owner)
		}
	}
	t.moveClocks()
	worker.settle(t, it, home, now)
}

// Finish ends the run of an item, which then neither waits nor runs.
func (t *Tree) Finish(it *Item) {
	it.must(running)
	for x := it.entries.first; x != nil; x = x.next {
		t.discharge(x.owner)
	}
	it.stage, it.worker, it.charges = apart, nil, nil
}

func (it *Item) must(s stage) {
	if it.stage != s {
		panic(fmt.Sprintf("fair: item at stage %d, not %d", it.stage, s))
	}
}

// enqueue puts an entry into the ranking of its leaf.
func (t *Tree) enqueue(e *Entry) {
	if e.parked {
		return
	}
	s, group := e.leaf.makeBacklog(e.item.kind), t.avoids(e.item)
	s.ranking(group).insert(e.sortKey())
	for ; s != nil; s = s.up {
		s.count(1, group)
		t.reorder(s)
	}
}

// dequeue takes an entry out of the ranking of its leaf.
func (t *Tree) dequeue(e *Entry) {
	if e.parked {
		return
	}
	s, group := e.leaf.backlog(e.item.kind), t.avoids(e.item)
	s.ranking(group).remove(e.sortKey())
	for ; s != nil; s = s.up {
		s.count(-1, group)
		t.reorder(s)
		s.tidy()
	}
}

// start takes an entry out of the ranking of its leaf and has the branches above pay,
// which have had their turn. Each is put into its new place before the next one
// changes, as heaps need it.
func (t *Tree) start(e *Entry) {
	it := e.item
	s, group := e.leaf.backlog(it.kind), t.avoids(it)
	s.ranking(group).remove(e.sortKey())
	for ; s != nil; s = s.up {
		b := s.branch
		s.count(-1, group)
		if b != t.root && it.pays(b) {
			b.running += it.cost
			t.turn(b, it.cost)
			t.placeAll(b)
		} else {
			t.reorder(s)
		}
		s.tidy()
	}
}

// turn counts a start as a turn of a branch: the branch moves to its cost over its weight after the
// branch with the latest turn. Neither its priority nor how far behind it was matters, so that no
// branch owes or saves turns.
func (t *Tree) turn(b *branch, cost int64) {
	at := max(b.parent.clock, b.served)
	t.moved = append(t.moved, moved{b.parent, at})
	// However small it is in comparison, it is a turn.
	b.served = max(at+float64(cost)/b.weight, math.Nextafter(at, math.Inf(1)))
	t.made++
	b.order = t.made
}

// A moved clock is the new position of a branch once all branches that share an item have had their
// turn.
type moved struct {
	branch *branch
	clock  float64
}

// moveClocks ends the turns of an item.
func (t *Tree) moveClocks() {
	for _, m := range t.moved {
		m.branch.clock = max(m.branch.clock, m.clock)
	}
	clear(t.moved)
	t.moved = t.moved[:0]
}

// charge has the branches above an entry pay for its item.
func (t *Tree) charge(e *Entry) {
	for b := e.leaf; b != t.root; b = b.parent {
		if e.item.pays(b) {
			b.running += e.item.cost
			t.placeAll(b)
		}
	}
}

// discharge undoes it.
func (t *Tree) discharge(e *Entry) {
	it := e.item
	for b := e.leaf; b != t.root; b = b.parent {
		if it.charges != nil {
			it.charges[b]--
			if it.charges[b] > 0 {
				continue
			}
			delete(it.charges, b)
		}
		b.running -= it.cost
		t.placeAll(b)
	}
}

// pays counts one more entry below a branch, and reports whether it is the first.
func (it *Item) pays(b *branch) bool {
	if it.charges == nil {
		return true
	}
	it.charges[b]++
	return it.charges[b] == 1
}

func (t *Tree) placeAll(b *branch) {
	for _, s := range b.backlogs {
		t.reorder(s)
	}
}
