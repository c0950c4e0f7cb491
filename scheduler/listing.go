package scheduler

import (
	"slices"
	"strings"
)

const (
	// maxPage bounds the entries of one answer.
	maxPage = 1000
	// lookBatch is how many operations are copied under the lock at a time, which takes about a millisecond.
	lookBatch = 10_000
)

// eachOperation calls do, without the lock, with the name of each operation that is not done and that p
// matches; nil: with all. What comes or ends meanwhile may be left out.
func (s *Server) eachOperation(p *Pattern, do func(name string)) {
	seen := make([]entry, 0, lookBatch)
	match := func() {
		for _, e := range seen {
			if p == nil || p.Match(e.attribute) {
				do(e.spec.Name)
			}
		}
		seen = seen[:0]
	}
	s.mu.Lock()
	for e := range s.state.entries() {
		if seen = append(seen, e); len(seen) == lookBatch {
			s.mu.Unlock()
			match()
			s.mu.Lock()
		}
	}
	s.mu.Unlock()
	match()
}

// A first keeps the first names after a token, in their order, of as many as one likes.
type first struct {
	token string
	size  int
	// names are those of the page, and one more if there is a next page.
	names least[string]
}

func newFirst(token string, size int32) *first {
	if size <= 0 || size > maxPage {
		size = maxPage
	}
	return &first{token: token, size: int(size), names: least[string]{most: int(size) + 1, compare: strings.Compare}}
}

func (f *first) add(name string) {
	if name > f.token {
		f.names.add(name)
	}
}

// page returns them and the next token, which is empty if there are no more.
func (f *first) page() (names []string, next string) {
	names = f.names.sorted()
	if len(names) <= f.size {
		return names, ""
	}
	return names[:f.size], names[f.size-1]
}

// A least keeps the first values of an order, at most so many of any number.
type least[T any] struct {
	most    int
	compare func(a, b T) int
	// values are those, and some that are dropped when they have become many. Once that has happened,
	// nothing that is not before last is of interest.
	values []T
	last   *T
}

func (l *least[T]) add(v T) {
	if l.most == 0 || l.last != nil && l.compare(v, *l.last) >= 0 {
		return
	}
	l.values = append(l.values, v)
	if len(l.values) == 4*l.most {
		last := l.sorted()[l.most-1]
		l.last = &last
	}
}

// sorted returns them in their order.
func (l *least[T]) sorted() []T {
	slices.SortFunc(l.values, l.compare)
	l.values = l.values[:min(len(l.values), l.most)]
	return l.values
}
