package core

import "container/list"

// A fifo holds values in order and gives each an anchor to remove it by.
type fifo[T any] struct{ l list.List }

func (f *fifo[T]) pushBack(v T) *list.Element { return f.l.PushBack(v) }

func (f *fifo[T]) remove(e *list.Element) { f.l.Remove(e) }

func (f *fifo[T]) len() int { return f.l.Len() }

// front returns the first value; false if there is none.
func (f *fifo[T]) front() (v T, ok bool) {
	e := f.l.Front()
	if e == nil {
		return v, false
	}
	return e.Value.(T), true
}

// all returns the values in order.
func (f *fifo[T]) all() []T {
	vs := make([]T, 0, f.l.Len())
	for e := f.l.Front(); e != nil; e = e.Next() {
		vs = append(vs, e.Value.(T))
	}
	return vs
}
