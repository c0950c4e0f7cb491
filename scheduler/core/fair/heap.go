package fair

import (
	std "container/heap"
	"iter"
)

// An entry is that of a backlog in a heap. It holds the values of the backlog when it was placed
// last, so that comparisons need not read the backlog, which is anywhere in memory.
type entry struct {
	grade         Grade
	score, served float64
	order         uint64
	backlog       *backlog
}

func (p *entry) before(o *entry) bool {
	switch {
	case p.grade != o.grade:
		return p.grade > o.grade
	case p.score != o.score:
		return p.score < o.score
	case p.served != o.served:
		return p.served < o.served
	}
	return p.order < o.order
}

// A heap has its first entry at index 0, and up to four below each entry. A backlog knows the index
// of its entry, plus one, as its turn or, in a heap by rank, as its rank; 0 is none.
type heap struct {
	entries []entry
	byRank  bool
}

const below = 4

// first returns the first backlog; nil if there is none.
func (h *heap) first() *backlog {
	if len(h.entries) == 0 {
		return nil
	}
	return h.entries[0].backlog
}

func (h *heap) push(x entry) {
	h.entries = append(h.entries, x)
	h.up(&x, len(h.entries)-1)
}

// remove takes out the entry at a slot.
func (h *heap) remove(slot int32) {
	old, i, last := h.entries, int(slot-1), len(h.entries)-1
	h.tell(old[i].backlog, 0)
	moved := old[last]
	old[last] = entry{}
	h.entries = old[:last]
	if i < last {
		h.fix(&moved, i)
	}
	if cap(old) > 64 && last < cap(old)/4 {
		h.entries = append(make([]entry, 0, cap(old)/2), h.entries...)
	}
}

// set replaces the entry at a slot by x.
func (h *heap) set(slot int32, x entry) {
	if h.entries[slot-1] != x {
		h.fix(&x, int(slot-1))
	}
}

// fix puts x in its place; index i is free.
func (h *heap) fix(x *entry, i int) {
	if h.up(x, i) == i {
		h.down(x, i)
	}
}

func (h *heap) up(x *entry, i int) int {
	for i > 0 {
		above := (i - 1) / below
		if !x.before(&h.entries[above]) {
			break
		}
		h.put(&h.entries[above], i)
		i = above
	}
	h.put(x, i)
	return i
}

func (h *heap) down(x *entry, i int) {
	for first := below*i + 1; first < len(h.entries); first = below*i + 1 {
		least := first
		for child := first + 1; child < min(first+below, len(h.entries)); child++ {
			if h.entries[child].before(&h.entries[least]) {
				least = child
			}
		}
		if !h.entries[least].before(x) {
			break
		}
		h.put(&h.entries[least], i)
		i = least
	}
	h.put(x, i)
}

// put copies the fields one by one: a copy of the whole is slow while the garbage collector marks.
func (h *heap) put(x *entry, i int) {
	at := &h.entries[i]
	at.grade, at.score, at.served, at.order = x.grade, x.score, x.served, x.order
	at.backlog = x.backlog
	h.tell(x.backlog, int32(i+1))
}

// tell tells a backlog the slot of its entry.
func (h *heap) tell(s *backlog, slot int32) {
	if h.byRank {
		s.rank = slot
	} else {
		s.turn = slot
	}
}

// inOrder yields the backlogs in their order. The next one is among those below the ones that were,
// so that the first few cost little, however many there are.
func (h *heap) inOrder() iter.Seq[*backlog] {
	return func(yield func(*backlog) bool) {
		if len(h.entries) == 0 || !yield(h.entries[0].backlog) {
			return
		}
		e := edge{heap: h}
		e.reach(0)
		for len(e.slots) > 0 {
			at := std.Pop(&e).(int)
			if !yield(h.entries[at].backlog) {
				return
			}
			e.reach(at)
		}
	}
}

// An edge has the indices of the entries below those that inOrder has yielded, as a heap.
type edge struct {
	*heap
	slots []int
}

// reach adds those below one.
func (e *edge) reach(i int) {
	for child := below*i + 1; child < min(below*i+1+below, len(e.entries)); child++ {
		std.Push(e, child)
	}
}

func (e *edge) Len() int { return len(e.slots) }

func (e *edge) Less(i, j int) bool { return e.entries[e.slots[i]].before(&e.entries[e.slots[j]]) }

func (e *edge) Swap(i, j int) { e.slots[i], e.slots[j] = e.slots[j], e.slots[i] }

func (e *edge) Push(x any) { e.slots = append(e.slots, x.(int)) }

func (e *edge) Pop() any {
	last := e.slots[len(e.slots)-1]
	e.slots = e.slots[:len(e.slots)-1]
	return last
}
