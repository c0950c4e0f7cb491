package sweep

import (
	"fmt"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/listing"
)

// A Link is the part of an item that its Line uses; the item embeds it. An item is in at most one
// Line.
type Link[T any] struct {
	number uint64
	since  time.Duration
}

// Since returns when the item was added to its Line, by timer.Clock.Awake.
func (p *Link[T]) Since() time.Duration { return p.since }

func (p *Link[T]) link() *Link[T] { return p }

// An Item is a pointer to a type that embeds a Link.
type Item[T any] interface {
	comparable
	link() *Link[T]
}

// A Line has items in the order in which they were added. The zero Line is empty.
type Line[T Item[T]] struct {
	// Owner is the owner of the items.
	Owner any

	items listing.List[T]
	// latest is the largest Since so far.
	latest time.Duration
	// seen is the number up to which the current pass has looked at the items.
	seen uint64
	pass pass
}

// A pass is the state of looking at all items of a Line.
type pass uint8

const (
	// over: there is none.
	over pass = iota
	// underway: the items after the seen ones are left.
	underway
	// again: and then all items once more, because the state has changed meanwhile.
	again
)

// First returns the first item; the zero T if there is none.
func (l *Line[T]) First() T {
	_, first := l.items.Next(0)
	return first
}

// Len returns the number of items.
func (l *Line[T]) Len() int { return l.items.Len() }

// IsSwept reports whether a pass through the line is in progress.
func (l *Line[T]) IsSwept() bool { return l.pass != over }

// Push adds an item at the end, at a time of timer.Clock.Awake.
func (l *Line[T]) Push(t T, awake time.Duration) {
	if l.items.Len() == 0 {
		l.latest = awake
	}
	l.latest = max(l.latest, awake) // more may have been lost than there was
	p := t.link()
	p.number, p.since = l.items.Add(t), l.latest
}

// Remove removes an item, which must be in the line.
func (l *Line[T]) Remove(t T) { l.items.Remove(t.link().number) }

// next returns the next item of the current pass; the zero T if none is left.
func (l *Line[T]) next() T {
	_, t := l.items.Next(l.seen)
	return t
}

// All returns the items in order.
func (l *Line[T]) All() []T {
	items := make([]T, 0, l.items.Len())
	for _, t := range l.items.After(0) {
		items = append(items, t)
	}
	return items
}

// Check returns an inconsistency of the line, empty if there is none.
func (l *Line[T]) Check() string {
	count, since := 0, time.Duration(0)
	for number, t := range l.items.After(0) {
		p := t.link()
		if p.number != number || count > 0 && p.since < since {
			return fmt.Sprintf("item %d is out of line", count)
		}
		count, since = count+1, p.since
	}
	if count != l.items.Len() || l.seen > l.items.Last() {
		return fmt.Sprintf("%d items are in line, counted %d, pass %d", count, l.items.Len(), l.pass)
	}
	return ""
}
