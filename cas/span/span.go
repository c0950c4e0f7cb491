package span

import "sort"

// A Span is the bytes of a blob from From up to, but not including, To.
type Span struct{ From, To int64 }

// A Set is a set of bytes, as Spans in their order that neither overlap nor touch. Its zero value
// is empty.
type Set []Span

// after returns the index of the first span that ends after at.
func (s Set) after(at int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].To > at })
}

// Add adds the bytes of p, which is not empty.
func (s *Set) Add(p Span) {
	// All that overlap or touch p become part of it.
	first := sort.Search(len(*s), func(i int) bool { return (*s)[i].To >= p.From })
	last := first
	for ; last < len(*s) && (*s)[last].From <= p.To; last++ {
		p.From, p.To = min(p.From, (*s)[last].From), max(p.To, (*s)[last].To)
	}
	if last == first {
		*s = append(*s, Span{})
		copy((*s)[first+1:], (*s)[first:])
	} else {
		*s = append((*s)[:first+1], (*s)[last:]...)
	}
	(*s)[first] = p
}

// End returns the end of the span that contains at, or at itself if none does: the first byte from
// at on that is not in the set.
func (s Set) End(at int64) int64 {
	if i := s.after(at); i < len(s) && s[i].From <= at {
		return s[i].To
	}
	return at
}

// Gap returns the missing bytes around at, up to the neighbouring spans. at is not in the set; size
// is where the last gap ends.
func (s Set) Gap(at, size int64) Span {
	g := Span{0, size}
	i := s.after(at)
	if i > 0 {
		g.From = s[i-1].To
	}
	if i < len(s) {
		g.To = s[i].From
	}
	return g
}

// Bytes returns how many bytes are in the set.
func (s Set) Bytes() (n int64) {
	for _, p := range s {
		n += p.To - p.From
	}
	return n
}

// Has reports whether all bytes of p are in the set.
func (s Set) Has(p Span) bool { return s.End(p.From) >= p.To }
