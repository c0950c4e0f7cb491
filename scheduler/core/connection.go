package core

import (
	"cmp"
	"maps"
	"slices"
	"time"
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

// Disconnect says that a connection has ended. The workers that called over it
// and have not come back over another one get Config.DisconnectSlack to do so.
func (s *State) Disconnect(now time.Time, connection uint64) Out {
	s.journal.disconnect(now, connection)
	s.begin(now)
	gone := slices.SortedFunc(maps.Keys(s.connections[connection]), func(a, b *worker) int {
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
	return s.end()
}
