package fair

import "iter"

// An element of a heap holds its sort key, so that comparisons need not read its value, which is
// anywhere in memory. The value learns its place, which counts from 1; 0 is none.
type element[T any] interface {
	comparable
	before(T) bool
	moved(slot int32)
}

// A heap has its first element at index 0, and up to four children below each element.
type heap[T element[T]] []T

const below = 4

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(x, len(*h)-1)
}

// remove takes out the element at a place.
func (h *heap[T]) remove(slot int32) {
	old, i, last := *h, int(slot-1), len(*h)-1
	old[i].moved(0)
	moved := old[last]
	var none T
	old[last] = none
	*h = old[:last]
	if i < last {
		h.fix(moved, i)
	}
	if cap(old) > 64 && last < cap(old)/4 {
		*h = append(make(heap[T], 0, cap(old)/2), *h...)
	}
}

// set puts x in the stead of the element at a place.
func (h heap[T]) set(slot int32, x T) {
	if h[slot-1] != x {
		h.fix(x, int(slot-1))
	}
}

// fix puts x in its place; index i is free.
func (h heap[T]) fix(x T, i int) {
	if h.up(x, i) == i {
		h.down(x, i)
	}
}

func (h heap[T]) up(x T, i int) int {
	for i > 0 {
		above := (i - 1) / below
		if !x.before(h[above]) {
			break
		}
		h.put(h[above], i)
		i = above
	}
	h.put(x, i)
	return i
}

func (h heap[T]) down(x T, i int) {
	for first := below*i + 1; first < len(h); first = below*i + 1 {
		least := first
		for child := first + 1; child < min(first+below, len(h)); child++ {
			if h[child].before(h[least]) {
				least = child
			}
		}
		if !h[least].before(x) {
			break
		}
		h.put(h[least], i)
		i = least
	}
	h.put(x, i)
}

// inOrder yields the elements in their order. The next one is among those below the ones that were,
// so that the first few cost little, however many there are.
func (h heap[T]) inOrder() iter.Seq[T] {
	return func(yield func(T) bool) {
		var edge []int
		if len(h) > 0 {
			edge = append(edge, 0)
		}
		for len(edge) > 0 {
			least := 0
			for i := range edge {
				if h[edge[i]].before(h[edge[least]]) {
					least = i
				}
			}
			at := edge[least]
			edge[least] = edge[len(edge)-1]
			edge = edge[:len(edge)-1]
			if !yield(h[at]) {
				return
			}
			for child := below*at + 1; child < min(below*at+1+below, len(h)); child++ {
				edge = append(edge, child)
			}
		}
	}
}

func (h heap[T]) put(x T, i int) {
	h[i] = x
	x.moved(int32(i + 1))
}
