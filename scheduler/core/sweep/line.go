package sweep

import (
	"fmt"
	"slices"
	"time"
)

// A Link is the part of an item that its Line uses; the item embeds it. An item is in at most one
// Line.
type Link[T any] struct {
	ahead, behind T
	since         time.Duration
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

	first, last T
	count       int
	// cursor is the next item of a pass; pass says whether there is one.
	cursor T
	pass   pass
}

// A pass is the state of looking at all items of a Line.
type pass uint8

const (
	// over: there is none.
	over pass = iota
	// underway: the items from the cursor on are left.
	underway
	// again: and then all items once more, because the state has changed meanwhile.
	again
)

// First returns the first item; the zero T if there is none.
func (l *Line[T]) First() T { return l.first }

// Len returns the number of items.
func (l *Line[T]) Len() int { return l.count }

// IsSwept reports whether a pass through the line is in progress.
func (l *Line[T]) IsSwept() bool { return l.pass != over }

// Push adds an item at the end, at a time of timer.Clock.Awake.
func (l *Line[T]) Push(t T, awake time.Duration) {
	var none T
	p := t.link()
	p.ahead, p.behind, p.since = l.last, none, awake
	if l.last == none {
		l.first = t
	} else {
		last := l.last.link()
		p.since = max(p.since, last.since) // more may have been lost than there was
		last.behind = t
	}
	l.last = t
	l.count++
	if l.pass != over && l.cursor == none {
		l.cursor = t
	}
}

// Remove removes an item, which must be in the line.
func (l *Line[T]) Remove(t T) {
	var none T
	p := t.link()
	if l.cursor == t {
		l.cursor = p.behind
	}
	if p.ahead == none {
		l.first = p.behind
	} else {
		p.ahead.link().behind = p.behind
	}
	if p.behind == none {
		l.last = p.ahead
	} else {
		p.behind.link().ahead = p.ahead
	}
	p.ahead, p.behind = none, none
	l.count--
}

// All returns the items in order.
func (l *Line[T]) All() []T {
	var none T
	items := make([]T, 0, l.count)
	for t := l.first; t != none; t = t.link().behind {
		items = append(items, t)
	}
	return items
}

// Check returns an inconsistency of the line, empty if there is none.
func (l *Line[T]) Check() string {
	var none T
	all := l.All()
	for i, t := range all {
		if p := t.link(); i > 0 && (p.ahead != all[i-1] || p.since < all[i-1].link().since) {
			return fmt.Sprintf("item %d is out of line", i)
		}
	}
	if len(all) != l.count || l.cursor != none && !slices.Contains(all, l.cursor) {
		return fmt.Sprintf("%d items are in line, counted %d, pass %d", len(all), l.count, l.pass)
	}
	return ""
}
