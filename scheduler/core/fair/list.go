package fair

// A list holds elements in order, without memory of its own: each element has a links inside. The
// zero list is empty.
type list[T any] struct{ first, last *links[T] }

// links are an element's place in one list; owner is the element while it is in
// the list, and nil otherwise.
type links[T any] struct {
	owner      *T
	prev, next *links[T]
}

func (l *list[T]) empty() bool { return l.first == nil }

func (l *list[T]) pushBack(x *links[T], owner *T) {
	x.owner, x.prev = owner, l.last
	if l.last == nil {
		l.first = x
	} else {
		l.last.next = x
	}
	l.last = x
}

func (l *list[T]) remove(x *links[T]) {
	if x.prev == nil {
		l.first = x.next
	} else {
		x.prev.next = x.next
	}
	if x.next == nil {
		l.last = x.prev
	} else {
		x.next.prev = x.prev
	}
	*x = links[T]{}
}
