package listing

import "iter"

// A Tagged is a List whose items have tags, by which a reader finds them. It looks at few of the
// others. The zero Tagged is empty.
type Tagged[T comparable] struct {
	list List[T]
	// groups have the tags of items with consecutive numbers. newest is the last one, to which items
	// are added; it is there even if its items are gone.
	groups List[*group]
	newest *group
}

// A Tag is a fact about an item by which a reader can look for it. 0 is none.
type Tag uint16

// TagOf returns the Tag of a text. Few other texts have the same, and none has 0.
func TagOf(text string) Tag {
	hash := uint32(2166136261) // FNV-1a
	for i := range min(len(text), 64) {
		hash = (hash ^ uint32(text[i])) * 16777619
	}
	return max(Tag(hash^hash>>16), 1)
}

// inGroup bounds what is held for an item whose neighbours are gone, to 3 KiB.
const inGroup = 1024

// bitsOfItem is how many bits tell the tags of a group apart, for each item. If all tags are
// different, one in eight readers looks through the group in vain.
const bitsOfItem = 8

// A group has the tags of items.
type group struct {
	// left counts the items that are not gone.
	left int
	// some has a bit for the tags of all that were ever there.
	some [inGroup * bitsOfItem / 64]uint64
	tags [inGroup]Tag
}

// bit returns the place of a tag in some.
func (g *group) bit(tag Tag) (word *uint64, mask uint64) {
	at := uint64(tag) % (inGroup * bitsOfItem)
	return &g.some[at/64], 1 << (at % 64)
}

// mayHave reports whether a group may have an item with a tag.
func (g *group) mayHave(tag Tag) bool {
	word, mask := g.bit(tag)
	return *word&mask != 0
}

// Len counts the items.
func (l *Tagged[T]) Len() int { return l.list.Len() }

// Last returns the number of the item that was added last, 0 before the first.
func (l *Tagged[T]) Last() uint64 { return l.list.Last() }

// Add adds an item and returns its number, which is one more than that of the item before.
func (l *Tagged[T]) Add(item T, tag Tag) uint64 {
	at := l.list.Last() % inGroup
	if at == 0 {
		if l.newest != nil && l.newest.left == 0 {
			l.groups.Remove(l.groups.Last())
		}
		l.newest = &group{}
		l.groups.Add(l.newest)
	}
	g := l.newest
	g.left++
	g.tags[at] = tag
	word, mask := g.bit(tag)
	*word |= mask
	return l.list.Add(item)
}

// Remove takes out the item with a number, which is there.
func (l *Tagged[T]) Remove(number uint64) {
	l.list.Remove(number)
	of := (number-1)/inGroup + 1
	if g := l.groups.at(of); g.left > 1 || g == l.newest {
		g.left--
	} else {
		l.groups.Remove(of)
	}
}

// Next returns the first item whose number is above a given one, and that has a tag; 0 is any. It
// is zero if there is none.
func (l *Tagged[T]) Next(after uint64, tag Tag) (number uint64, item T) {
	var gone T
	if tag == 0 {
		return l.list.Next(after)
	}
	for n, g := l.groups.Next(after / inGroup); n > 0; n, g = l.groups.Next(n) {
		if !g.mayHave(tag) {
			continue
		}
		first := (n - 1) * inGroup
		for at := max(after, first) - first; at < inGroup; at++ {
			if g.tags[at] != tag {
				continue
			}
			if item := l.list.at(first + at + 1); item != gone {
				return first + at + 1, item
			}
		}
	}
	return 0, gone
}

// After yields the items with larger numbers than one, and with a tag (0: any), in order.
func (l *Tagged[T]) After(number uint64, tag Tag) iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		for at, item := l.Next(number, tag); at > 0 && yield(at, item); {
			at, item = l.Next(at, tag)
		}
	}
}
