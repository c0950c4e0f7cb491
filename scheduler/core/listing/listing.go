package listing

import (
	"iter"
	"sort"
)

// A List has items, each with a number of its own. The zero List is empty.
type List[T comparable] struct {
	// blocks are in order, and a block whose items are gone is nil: never the first or the last,
	// and no more than half of them. marks has the mark of each.
	blocks []*block[T]
	marks  []mark
	// n counts the items, vacant the nil blocks.
	n, vacant int
	// next is the place of the next item.
	next Place
}

// A Place is where a List has an item: it is larger by one than that of the item that was added
// before. After the last one that there is room for, places begin again.
type Place uint32

// A mark has the place and the number of the first item that came to a block.
type mark struct {
	place  Place
	number uint64
}

// A block has items that came one after the other. An item that is gone is zero.
type block[T comparable] struct {
	entries []entry[T]
	left    int
}

type entry[T comparable] struct {
	number uint64
	item   T
}

// mostInBlock bounds what is held for an item whose neighbours are gone.
const mostInBlock = 64

// Len counts the items.
func (l *List[T]) Len() int { return l.n }

// Add adds an item, whose number is above those of all that came before.
func (l *List[T]) Add(number uint64, item T) Place {
	last := len(l.blocks) - 1
	if last < 0 || len(l.blocks[last].entries) == mostInBlock {
		l.blocks = append(l.blocks, &block[T]{})
		l.marks = append(l.marks, mark{l.next, number})
		last++
	}
	b := l.blocks[last]
	b.entries = append(b.entries, entry[T]{number, item})
	b.left++
	l.n++
	l.next++
	return l.next - 1
}

// Remove takes out the item at a place, which is there.
func (l *List[T]) Remove(at Place) {
	var gone T
	i := l.find(at)
	b := l.blocks[i]
	b.entries[at-l.marks[i].place].item = gone
	b.left--
	l.n--
	if b.left == 0 {
		l.blocks[i] = nil
		l.vacant++
		l.tidy()
	}
}

// find returns the index of the block with a place.
func (l *List[T]) find(at Place) int {
	first := l.marks[0].place
	return sort.Search(len(l.marks), func(i int) bool { return l.marks[i].place-first > at-first }) - 1
}

// tidy drops blocks that are nil: those at either end, and all of them once they are many.
func (l *List[T]) tidy() {
	for len(l.blocks) > 0 && l.blocks[0] == nil {
		l.blocks, l.marks = l.blocks[1:], l.marks[1:]
		l.vacant--
	}
	for last := len(l.blocks) - 1; last >= 0 && l.blocks[last] == nil; last-- {
		l.blocks, l.marks = l.blocks[:last], l.marks[:last]
		l.vacant--
	}
	if 2*l.vacant <= len(l.blocks) {
		return
	}
	kept := 0
	for i, b := range l.blocks {
		if b != nil {
			l.blocks[kept], l.marks[kept] = b, l.marks[i]
			kept++
		}
	}
	clear(l.blocks[kept:])
	l.blocks, l.marks, l.vacant = l.blocks[:kept], l.marks[:kept], 0
}

// After yields the items with larger numbers than one, in order. They must not change meanwhile.
func (l *List[T]) After(number uint64) iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		var gone T
		i := sort.Search(len(l.marks), func(i int) bool { return l.marks[i].number > number })
		for _, b := range l.blocks[max(i-1, 0):] {
			if b == nil {
				continue
			}
			for _, e := range b.entries {
				if e.number > number && e.item != gone && !yield(e.number, e.item) {
					return
				}
			}
		}
	}
}
