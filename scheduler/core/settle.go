package core

import (
	"maps"
	"slices"
)

// settling ends the time in which nothing is given to workers (Config.Settle).
type settling struct{}

// due lets the workers that came meanwhile, in the order of their names, have
// what waits.
func (settling) due(s *State) {
	for _, key := range slices.Sorted(maps.Keys(s.workers)) {
		if w := s.workers[key]; w.held {
			s.offer(w)
		}
	}
}

func (s *State) isSettling() bool { return s.settle.slot > 0 }
