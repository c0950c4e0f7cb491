package fifo

import (
	"container/list"
	"iter"
)

// A List holds values in order. The zero List is empty.
type List[T any] struct{ l list.List }

// An Anchor identifies a value, to remove it.
type Anchor = *list.Element

// PushBack adds v at the end.
func (f *List[T]) PushBack(v T) Anchor { return f.l.PushBack(v) }

// Remove removes the value of an anchor, if it is still in f.
func (f *List[T]) Remove(a Anchor) { f.l.Remove(a) }

// MoveToBack moves the value of an anchor to the end, if it is still in f.
func (f *List[T]) MoveToBack(a Anchor) { f.l.MoveToBack(a) }

// Len returns the number of values.
func (f *List[T]) Len() int { return f.l.Len() }

// Front returns the first value; false if there is none.
func (f *List[T]) Front() (v T, ok bool) {
	e := f.l.Front()
	if e == nil {
		return v, false
	}
	return e.Value.(T), true
}

// Values yields the values in order. The caller may remove the latest yielded one meanwhile.
func (f *List[T]) Values() iter.Seq[T] {
	return func(yield func(T) bool) {
		for e := f.l.Front(); e != nil; {
			next := e.Next()
			if !yield(e.Value.(T)) {
				return
			}
			e = next
		}
	}
}
