package core

import "iter"

// sharers are the operations of one task, in the order in which they came; the zero value has none. Each
// holds the one that came after it, and the one before it; the first holds the last there. So the list
// takes one word of the task, and who leaves is found at once: all may leave in one event, when a
// client with many dies.
type sharers struct{ first *operation }

func (l *sharers) empty() bool { return l.first == nil }

func (l *sharers) add(o *operation) {
	if l.first == nil {
		l.first, o.before = o, o
		return
	}
	last := l.first.before
	last.after, o.before, l.first.before = o, last, o
}

func (l *sharers) remove(o *operation) {
	if o.after != nil {
		o.after.before = o.before
	} else {
		l.first.before = o.before
	}
	if l.first == o {
		l.first = o.after
	} else {
		o.before.after = o.after
	}
	o.before, o.after = nil, nil
}

// all yields the operations in order. The one that is yielded may be removed meanwhile.
func (l *sharers) all() iter.Seq[*operation] {
	return func(yield func(*operation) bool) {
		for o := l.first; o != nil; {
			after := o.after
			if !yield(o) {
				return
			}
			o = after
		}
	}
}
