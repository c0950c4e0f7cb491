package least

import "slices"

// A List keeps a limited number of values, the least in its order. Of makes one.
type List[T any] struct {
	most    int
	compare func(a, b T) int
	// values are those, and some that are dropped when they have become many. Once that has
	// happened, nothing that is not before last is of interest.
	values []T
	last   *T
}

// Of returns an empty List with that maximum number of values; 0 keeps none.
func Of[T any](most int, compare func(a, b T) int) List[T] {
	return List[T]{most: most, compare: compare}
}

// Takes reports whether Add may keep a value.
func (l *List[T]) Takes(v T) bool {
	return l.most > 0 && (l.last == nil || l.compare(v, *l.last) < 0)
}

// Add offers a value.
func (l *List[T]) Add(v T) {
	if !l.Takes(v) {
		return
	}
	l.values = append(l.values, v)
	if len(l.values) == 4*l.most {
		last := l.Sorted()[l.most-1]
		l.last = &last
	}
}

// Sorted returns the least values in their order. They are valid until the next Add.
func (l *List[T]) Sorted() []T {
	slices.SortFunc(l.values, l.compare)
	l.values = l.values[:min(len(l.values), l.most)]
	return l.values
}
