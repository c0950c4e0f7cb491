package fair

import "time"

// An Item is a piece of work. It lives inside its owner; the zero Item, with the
// owner filled in, neither waits nor runs.
type Item struct {
	// Owner is the caller's.
	Owner any

	stage stage
	kind  uint32
	cost  int64
	// entries has an entry for each operation that waits for it.
	entries list[Entry]
	// worker runs it.
	worker *Worker
	// charges counts, while it runs with more than one entry, the entries below
	// each branch that pays for it.
	charges map[*branch]int
}

type stage uint8

const (
	apart   stage = iota // neither waits nor runs
	waiting              // each of its entries is in the ranking of its leaf
	running              // the branches above its entries pay for it
)

// Waits reports whether the item is in a queue.
func (it *Item) Waits() bool { return it.stage == waiting }

// A Rank orders the entries of a leaf.
type Rank struct {
	// Priority: lower ones go first.
	Priority int32
	// Expected is the item's expected duration: longer ones go first.
	Expected time.Duration
	// Age orders otherwise equal entries: smaller ones go first. No two entries of a tree have the
	// same age.
	Age uint64
}

// An Entry is the position of one operation in a tree: a leaf, and a rank in it. It lives inside
// its owner; the zero Entry is in no tree.
type Entry struct {
	leaf *branch
	item *Item
	// expected, age and priority are its Rank, in less room.
	expected time.Duration
	age      uint64
	priority int32
	// returned: the item goes before all others of the same priority.
	returned bool
	// parked: it keeps its rank and has no turn.
	parked bool
	// others links to the entries of the same item.
	others links[Entry]
}

// Rank returns the rank with which the entry was attached.
func (e *Entry) Rank() Rank { return Rank{e.priority, e.expected, e.age} }

// A sortKey is the position of an entry in the ranking of its leaf. It does not change while the
// entry is in the ranking.
type sortKey struct {
	priority int32
	returned bool
	expected time.Duration
	age      uint64
	entry    *Entry
}

func (e *Entry) sortKey() sortKey {
	return sortKey{e.priority, e.returned, e.expected, e.age, e}
}

func (p sortKey) before(o sortKey) bool {
	switch {
	case p.priority != o.priority:
		return p.priority < o.priority
	case p.returned != o.returned:
		return p.returned
	case p.expected != o.expected:
		return p.expected > o.expected
	}
	return p.age < o.age
}
