package core

import (
	"cmp"
	"maps"
	"slices"
)

// connect notes which connection a worker called over; 0: none.
func (s *State) connect(w *worker, connection uint64) {
	if w.connection == connection {
		return
	}
	if ws := s.connections[w.connection]; ws != nil {
		delete(ws, w)
		if len(ws) == 0 {
			delete(s.connections, w.connection)
		}
	}
	w.connection = connection
	if connection == 0 {
		return
	}
	if s.connections[connection] == nil {
		s.connections[connection] = map[*worker]struct{}{}
	}
	s.connections[connection][w] = struct{}{}
}

func (e Disconnect) apply(s *State) error {
	gone := slices.SortedFunc(maps.Keys(s.connections[e.Connection]), func(a, b *worker) int {
		return cmp.Compare(a.key, b.key)
	})
	limit := s.now.Add(s.cfg.DisconnectSlack)
	for _, w := range gone {
		s.connect(w, 0)
		// A call that is held has its own hangup, and no action that suffers.
		if !w.held && s.timers.when(&w.timer).After(limit) {
			s.timers.set(&w.timer, limit)
		}
	}
	return nil
}
