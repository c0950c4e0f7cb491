package fair

import "time"

// An Item is a piece of work. It lives inside its owner; the zero Item, with the
// owner filled in, neither waits nor runs.
type Item struct {
	// Owner is the caller's.
	Owner any

	stage stage
	lane  uint32
	cost  int64
	// entries are those of the operations that want it.
	entries list[Entry]
	// seat is that of the worker that runs it.
	seat *Seat
	// charges counts, while it runs with more than one entry, the entries below
	// each branch that pays for it.
	charges map[*branch]int
}

type stage uint8

const (
	apart   stage = iota // neither waits nor runs
	waiting              // each of its entries is in the heap of its leaf
	running              // the branches above its entries pay for it
)

// Waits reports whether the item is in a queue.
func (it *Item) Waits() bool { return it.stage == waiting }

// A Rank orders the entries of a leaf.
type Rank struct {
	// Priority: a lower one goes first.
	Priority int32
	// Expected is how long the item is thought to run: the longest go first.
	Expected time.Duration
	// Age decides what is equal otherwise: the smallest goes first. No two entries
	// of a tree have the same.
	Age uint64
}

// An Entry is the place of one operation in a tree: a leaf, and a rank in it. It
// lives inside its owner; the zero Entry is in no tree.
type Entry struct {
	rank Rank
	leaf *branch
	item *Item
	// others are the entries of the same item.
	others links[Entry]
	// slot is the place in the heap of the leaf, 0 when the item does not wait.
	slot int32
	// returned: the item goes before all others of the same priority.
	returned bool
}

// Rank returns what the entry was attached with.
func (e *Entry) Rank() Rank { return e.rank }

func (e *Entry) before(f *Entry) bool {
	switch {
	case e.rank.Priority != f.rank.Priority:
		return e.rank.Priority < f.rank.Priority
	case e.returned != f.returned:
		return e.returned
	case e.rank.Expected != f.rank.Expected:
		return e.rank.Expected > f.rank.Expected
	}
	return e.rank.Age < f.rank.Age
}

func (e *Entry) moved(slot int32) { e.slot = slot }
