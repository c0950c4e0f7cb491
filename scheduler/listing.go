package scheduler

import (
	"strings"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/least"
)

const (
	// maxPage bounds the entries of one answer.
	maxPage = 1000
	// lookBatch is how many operations are copied under the lock at a time, which takes about a millisecond.
	lookBatch = 10_000
)

// eachOperation calls do, without the lock, with each operation that is not done and that p
// matches; nil: with all. What comes or ends meanwhile may be left out.
func (s *Server) eachOperation(p *core.Pattern, do func(*core.Operation)) {
	seen := make([]core.Entry, 0, lookBatch)
	match := func() {
		for _, e := range seen {
			if p == nil || p.Match(e.Attribute) {
				do(e.Operation)
			}
		}
		seen = seen[:0]
	}
	s.mu.Lock()
	for e := range s.state.View().Entries() {
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
	names least.List[string]
}

func newFirst(token string, size int32) *first {
	if size <= 0 || size > maxPage {
		size = maxPage
	}
	return &first{token: token, size: int(size), names: least.Of(int(size)+1, strings.Compare)}
}

func (f *first) add(name string) {
	if name > f.token {
		f.names.Add(name)
	}
}

// page returns them and the next token, which is empty if there are no more.
func (f *first) page() (names []string, next string) {
	names = f.names.Sorted()
	if len(names) <= f.size {
		return names, ""
	}
	return names[:f.size], names[f.size-1]
}
