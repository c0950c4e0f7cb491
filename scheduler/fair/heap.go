package fair

// An element of a heap knows its order and is told its place, which counts from
// 1; 0 is none.
type element[T any] interface {
	before(T) bool
	moved(slot int32)
}

// A heap has the element that is before all others at index 0.
type heap[T element[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
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
		old[i] = moved
		h.fix(int32(i + 1))
	}
	if cap(old) > 64 && last < cap(old)/4 {
		*h = append(make(heap[T], 0, cap(old)/2), *h...)
	}
}

// fix restores the order after the element at a place has changed.
func (h *heap[T]) fix(slot int32) {
	if i := int(slot - 1); h.up(i) == i {
		h.down(i)
	}
}

func (h *heap[T]) up(i int) int {
	s := *h
	x := s[i]
	for i > 0 {
		above := (i - 1) / 2
		if !x.before(s[above]) {
			break
		}
		s[i] = s[above]
		s[i].moved(int32(i + 1))
		i = above
	}
	s[i] = x
	x.moved(int32(i + 1))
	return i
}

func (h *heap[T]) down(i int) {
	s := *h
	x := s[i]
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1].before(s[child]) {
			child++
		}
		if !s[child].before(x) {
			break
		}
		s[i] = s[child]
		s[i].moved(int32(i + 1))
		i = child
	}
	s[i] = x
	x.moved(int32(i + 1))
}
