package fetch

import "sort"

// A span is the bytes of a blob from from up to but without to.
type span struct{ from, to int64 }

// spans is a set of bytes, as spans in their order that neither overlap nor touch.
type spans []span

// after returns the index of the first span that ends after at.
func (s spans) after(at int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].to > at })
}

// add adds the bytes of p, which is not empty.
func (s *spans) add(p span) {
	// All that overlap or touch p become part of it.
	first := sort.Search(len(*s), func(i int) bool { return (*s)[i].to >= p.from })
	last := first
	for ; last < len(*s) && (*s)[last].from <= p.to; last++ {
		p.from, p.to = min(p.from, (*s)[last].from), max(p.to, (*s)[last].to)
	}
	if last == first {
		*s = append(*s, span{})
		copy((*s)[first+1:], (*s)[first:])
	} else {
		*s = append((*s)[:first+1], (*s)[last:]...)
	}
	(*s)[first] = p
}

// end returns the end of the span that holds at, or at if none does: the first
// byte from at on that is not in the set.
func (s spans) end(at int64) int64 {
	if i := s.after(at); i < len(s) && s[i].from <= at {
		return s[i].to
	}
	return at
}

// gap returns the bytes around at, which is not in the set, up to the neighbours
// that are; size is where the last gap ends.
func (s spans) gap(at, size int64) span {
	g := span{0, size}
	i := s.after(at)
	if i > 0 {
		g.from = s[i-1].to
	}
	if i < len(s) {
		g.to = s[i].from
	}
	return g
}
