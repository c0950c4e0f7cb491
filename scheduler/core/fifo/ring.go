package fifo

// A Ring holds values in order, and makes no garbage as they come and go: it has room for as many
// as there ever were. The zero Ring is empty.
type Ring[T any] struct {
	values   []T // as many as a power of two
	first, n int
}

// Len returns the number of values.
func (r *Ring[T]) Len() int { return r.n }

// At returns the value with so many before it, to read or change it until the next PushBack.
func (r *Ring[T]) At(i int) *T { return &r.values[(r.first+i)&(len(r.values)-1)] }

// PushBack adds v at the end.
func (r *Ring[T]) PushBack(v T) {
	if r.n == len(r.values) {
		more := make([]T, max(1, 2*r.n))
		copy(more[copy(more, r.values[r.first:]):], r.values[:r.first])
		r.values, r.first = more, 0
	}
	r.n++
	*r.At(r.n - 1) = v
}

// PopFront removes the first value, which is there, and returns it.
func (r *Ring[T]) PopFront() T {
	var gone T
	at := r.At(0)
	v := *at
	*at = gone
	r.first = (r.first + 1) & (len(r.values) - 1)
	r.n--
	return v
}
