package listing

import (
	"iter"
	"sort"
)

// A List has items, each with the number that Add returned. The zero List is empty.
//
// A million items are in it, and most of its memory is in no cache. So an item is found by its
// number, which is its place, and costs one pointer for the garbage collector.
type List[T comparable] struct {
	// blocks are in order. One whose items are gone is nil: never the first or the last, and no
	// more than half of them. The last one is there even if its items are gone, and is used again.
	// marks has the mark of each: a few of them are in one line of a cache.
	blocks []*block[T]
	marks  []mark
	// n counts the items, vacant the nil blocks.
	n, vacant int
	// last is the number of the item that was added last, 0 before the first.
	last uint64
}

// inBlock bounds what is held for an item whose neighbours are gone.
const inBlock = 32

// A block has items with consecutive numbers. An item that is gone is zero.
type block[T comparable] struct{ items [inBlock]T }

// A mark counts the items that are left in a block. index is that of the block among all that ever
// were.
type mark struct {
	index uint64
	left  int
}

// Len counts the items.
func (l *List[T]) Len() int { return l.n }

// Last returns the number of the item that was added last, 0 before the first.
func (l *List[T]) Last() uint64 { return l.last }

// Add adds an item and returns its number, which is one more than that of the item before.
func (l *List[T]) Add(item T) uint64 {
	index, at := l.last/inBlock, l.last%inBlock
	end := len(l.blocks) - 1
	switch {
	case end >= 0 && l.marks[end].left == 0:
		l.marks[end].index = index
	case at == 0 || end < 0:
		l.blocks, l.marks = append(l.blocks, &block[T]{}), append(l.marks, mark{index: index})
		end++
	}
	l.blocks[end].items[at] = item
	l.marks[end].left++
	l.n++
	l.last++
	return l.last
}

// Remove takes out the item with a number, which is there.
func (l *List[T]) Remove(number uint64) {
	var gone T
	i := l.find((number - 1) / inBlock)
	l.blocks[i].items[(number-1)%inBlock] = gone
	l.n--
	if l.marks[i].left--; l.marks[i].left == 0 && i < len(l.blocks)-1 {
		l.blocks[i] = nil
		l.vacant++
		l.tidy()
	}
}

// find returns where in blocks the first one is whose index is at least a given one. Without gaps
// it is found at once.
func (l *List[T]) find(index uint64) int {
	if len(l.marks) == 0 || index <= l.marks[0].index {
		return 0
	}
	i := int(min(index-l.marks[0].index, uint64(len(l.marks))))
	if i < len(l.marks) && l.marks[i].index == index {
		return i
	}
	return sort.Search(i, func(i int) bool { return l.marks[i].index >= index })
}

// tidy drops blocks that are nil: the first ones, and all of them once they are many.
func (l *List[T]) tidy() {
	for l.blocks[0] == nil {
		l.blocks, l.marks = l.blocks[1:], l.marks[1:]
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

// at returns the item with a number; zero if it is gone.
func (l *List[T]) at(number uint64) (item T) {
	index := (number - 1) / inBlock
	if i := l.find(index); i < len(l.marks) && l.marks[i].index == index && l.marks[i].left > 0 {
		item = l.blocks[i].items[(number-1)%inBlock]
	}
	return item
}

// Next returns the first item whose number is above a given one. It is zero if there is none.
func (l *List[T]) Next(after uint64) (number uint64, item T) {
	var gone T
	for i := l.find(after / inBlock); i < len(l.blocks); i++ {
		m, b := &l.marks[i], l.blocks[i]
		if m.left == 0 {
			continue
		}
		first := m.index * inBlock
		at := 0
		if first < after {
			at = int(after - first)
		}
		for ; at < inBlock; at++ {
			if b.items[at] != gone {
				return first + uint64(at) + 1, b.items[at]
			}
		}
	}
	return 0, gone
}

// After yields the items with larger numbers than one, in order.
func (l *List[T]) After(number uint64) iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		for at, item := l.Next(number); at > 0 && yield(at, item); {
			at, item = l.Next(at)
		}
	}
}
