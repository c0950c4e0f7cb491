package core

import (
	"errors"
	"maps"
	"slices"
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

func (e Drain) apply(s *State) error {
	if s.drains.index(e.Pattern) >= 0 {
		return nil
	}
	if len(s.drains) >= MaxDrains {
		return ErrTooManyDrains
	}
	s.drains = append(s.drains, e.Pattern)
	s.redrain()
	return nil
}

func (e Undrain) apply(s *State) error {
	i := s.drains.index(e.Pattern)
	if i < 0 {
		return ErrUnknown
	}
	s.drains = slices.Delete(s.drains, i, i+1)
	s.redrain()
	return nil
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
