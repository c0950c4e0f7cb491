package listing

import (
	"cmp"
	"iter"
	"slices"
)

// A List has items, each with its own number. The zero List is empty.
type List[T any] struct {
	// chunks are in order. None is empty of items.
	chunks []chunk[T]
	n      int
}

// A chunk is entries of a List, which are in order. Where items were that are gone the entries stay
// for a while: at most half of them.
type chunk[T any] struct {
	// first is the number of the first entry, of those that were there.
	first   uint64
	entries []entry[T]
	gone    int
}

type entry[T any] struct {
	number uint64
	item   T
	gone   bool
}

// mostInChunk bounds what Add and Remove move.
const mostInChunk = 128

// Len returns the number of items.
func (l *List[T]) Len() int { return l.n }

// Add adds an item. Its number must be larger than those of all earlier ones.
func (l *List[T]) Add(number uint64, item T) {
	l.n++
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last].entries) >= mostInChunk {
		l.chunks = append(l.chunks, chunk[T]{first: number})
		last++
	}
	c := &l.chunks[last]
	c.entries = append(c.entries, entry[T]{number: number, item: item})
}

// Remove removes the item with a number, which must be in the list.
func (l *List[T]) Remove(number uint64) {
	l.n--
	i := l.find(number)
	c := &l.chunks[i]
	at, _ := c.find(number)
	c.entries[at] = entry[T]{number: number, gone: true}
	c.gone++
	switch {
	case c.gone == len(c.entries) && i == 0:
		l.chunks[0] = chunk[T]{}
		l.chunks = l.chunks[1:]
	case c.gone == len(c.entries):
		l.chunks = slices.Delete(l.chunks, i, i+1)
	case 2*c.gone > len(c.entries):
		c.pack()
	}
}

// After yields the items with numbers above a given one, in order. The list must not change
// meanwhile.
func (l *List[T]) After(number uint64) iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		for i := max(l.find(number), 0); i < len(l.chunks); i++ {
			for _, e := range l.chunks[i].entries {
				if e.number > number && !e.gone && !yield(e.number, e.item) {
					return
				}
			}
		}
	}
}

// find returns the last chunk that begins with a number or before it; -1: none does.
func (l *List[T]) find(number uint64) int {
	i, found := slices.BinarySearchFunc(l.chunks, number, func(c chunk[T], n uint64) int { return cmp.Compare(c.first, n) })
	if found {
		return i
	}
	return i - 1
}

func (c *chunk[T]) find(number uint64) (at int, found bool) {
	return slices.BinarySearchFunc(c.entries, number, func(e entry[T], n uint64) int { return cmp.Compare(e.number, n) })
}

// pack drops the entries of items that are gone.
func (c *chunk[T]) pack() {
	kept := make([]entry[T], 0, len(c.entries)-c.gone)
	for _, e := range c.entries {
		if !e.gone {
			kept = append(kept, e)
		}
	}
	c.entries, c.gone = kept, 0
}
