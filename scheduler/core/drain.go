package core

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// ErrTooManyDrains says that MaxDrains patterns are in force.
var ErrTooManyDrains = errors.New("too many drains are in force; undrain some, or use patterns that match more")

// MaxDrains bounds the patterns in force: each new worker is compared with all.
const MaxDrains = 1000

// drains are the patterns in force, the oldest first.
type drains []Pattern

func (d drains) match(w *worker) bool {
	return slices.ContainsFunc(d, func(p Pattern) bool { return p.Match(w.attribute) })
}

func (d drains) index(p Pattern) int {
	return slices.IndexFunc(d, func(x Pattern) bool { return x.String() == p.String() })
}

// attribute is what patterns see of a worker: its identity.
func (w *worker) attribute(name string) (string, bool) {
	v, ok := w.id[name]
	return v, ok
}

// Drain lets the workers that p matches, those of now and those to come, finish
// what they have and gives them nothing more, until Undrain. Its error is
// ErrTooManyDrains.
func (s *State) Drain(now time.Time, p Pattern) (Out, error) {
	s.journal.drain(now, p)
	s.begin(now)
	if s.drains.index(p) < 0 {
		if len(s.drains) >= MaxDrains {
			return s.end(), ErrTooManyDrains
		}
		s.drains = append(s.drains, p)
		s.redrain()
	}
	return s.end(), nil
}

// Undrain takes back what Drain did with an equal pattern; false if that is not
// in force. A worker that another pattern matches too stays drained.
func (s *State) Undrain(now time.Time, p Pattern) (Out, bool) {
	s.journal.undrain(now, p)
	s.begin(now)
	i := s.drains.index(p)
	if i >= 0 {
		s.drains = slices.Delete(s.drains, i, i+1)
		s.redrain()
	}
	return s.end(), i >= 0
}

// Drains returns the patterns in force, the oldest first.
func (s *State) Drains() []Pattern { return slices.Clone(s.drains) }

// redrain applies the patterns in force to all workers, in the order of their names.
func (s *State) redrain() {
	for _, key := range slices.Sorted(maps.Keys(s.workers)) {
		w := s.workers[key]
		drained := s.drains.match(w)
		if drained == w.drained {
			continue
		}
		w.drained = drained
		if drained {
			// A call that is held stays so: the worker would come back at once.
			s.unidle(w)
		}
		s.serve(w)
		if !drained && w.held {
			s.offer(w)
		}
	}
}
