package drain

import (
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/proto/pattern"
)

// A Record is an active drain: its pattern, its start, and its author and reason if they are known.
type Record struct {
	Pattern        pattern.Pattern
	Reason, Author string
	// Since is when it became active; in an order, zero means now.
	Since time.Time
}

// Max limits the active drains: each new worker is compared with all.
const Max = 1000

// ErrTooMany: there are already Max active drains.
var ErrTooMany = errors.New("too many drains are in force; undrain some, or use patterns that match more")

// A List has the active drains, the oldest first. They apply to present and later workers. The zero
// List is empty.
type List struct{ records []Record }

// Put activates a drain. It returns false if one with an equal pattern is active already, whose
// reason and author then become those of r if r has a reason. It fails with ErrTooMany.
func (l *List) Put(r Record) (bool, error) {
	if i := l.index(r.Pattern); i >= 0 {
		if r.Reason != "" {
			l.records[i].Reason, l.records[i].Author = r.Reason, r.Author
		}
		return false, nil
	}
	if len(l.records) >= Max {
		return false, ErrTooMany
	}
	l.records = append(l.records, r)
	return true, nil
}

// Delete ends the drain with an equal pattern; false: there is none.
func (l *List) Delete(p pattern.Pattern) bool {
	i := l.index(p)
	if i >= 0 {
		l.records = slices.Delete(l.records, i, i+1)
	}
	return i >= 0
}

// Matches reports whether an active drain matches a worker; attribute returns the worker's values.
func (l *List) Matches(attribute func(name string) (string, bool)) bool {
	return slices.ContainsFunc(l.records, func(r Record) bool { return r.Pattern.Match(attribute) })
}

// Len returns the number of active drains.
func (l *List) Len() int { return len(l.records) }

// All yields the active drains, the oldest first.
func (l *List) All() iter.Seq[Record] { return slices.Values(l.records) }

func (l *List) index(p pattern.Pattern) int {
	return slices.IndexFunc(l.records, func(x Record) bool { return x.Pattern.String() == p.String() })
}
