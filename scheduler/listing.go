package scheduler

import "slices"

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
	// names are those of the page, one more if there is a next page, and some that are dropped when they
	// have become many. From last on, nothing is of interest any more; empty: everything is.
	names []string
	last  string
}

func newFirst(token string, size int32) *first {
	if size <= 0 || size > maxPage {
		size = maxPage
	}
	return &first{token: token, size: int(size)}
}

func (f *first) add(name string) {
	if name <= f.token || f.last != "" && name >= f.last {
		return
	}
	f.names = append(f.names, name)
	if len(f.names) == 4*(f.size+1) {
		f.cut()
		f.last = f.names[f.size]
	}
}

// cut leaves those of the page and one more.
func (f *first) cut() {
	slices.Sort(f.names)
	f.names = f.names[:min(len(f.names), f.size+1)]
}

// page returns them and the next token, which is empty if there are no more.
func (f *first) page() (names []string, next string) {
	f.cut()
	if len(f.names) <= f.size {
		return f.names, ""
	}
	return f.names[:f.size], f.names[f.size-1]
}
