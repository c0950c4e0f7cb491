package core

import "slices"

// attribute is what patterns see of a worker: its identity.
func (w *worker) attribute(name string) (string, bool) {
	v, ok := w.id[name]
	return v, ok
}

func (e Drain) apply(s *State) error {
	changed, err := s.workers.drain(e.Pattern)
	if changed {
		s.redrain()
	}
	return err
}

func (e Undrain) apply(s *State) error {
	if !s.workers.undrain(e.Pattern) {
		return ErrUnknown
	}
	s.redrain()
	return nil
}

// Drains returns the patterns in force, the oldest first.
func (s *State) Drains() []Pattern { return slices.Clone(s.workers.drains) }

// redrain applies the patterns in force to all workers, in the order of their names.
func (s *State) redrain() {
	for _, w := range s.workers.sorted() {
		drained := s.workers.isDrained(w)
		if drained == w.drained {
			continue
		}
		w.drained = drained
		if drained {
			// A call that is held stays so: the worker would come back at once.
			w.unidle()
		}
		s.dispatch.serve(w)
		if !drained && w.held {
			s.dispatch.offer(w)
		}
	}
}

func (e Disconnect) apply(s *State) error {
	limit := s.now.Add(s.cfg.DisconnectSlack)
	for _, w := range s.workers.disconnect(e.Connection) {
		// A call that is held has its own hangup, and no action that suffers.
		if !w.held && s.timers.when(&w.timer).After(limit) {
			s.timers.set(&w.timer, limit)
		}
	}
	return nil
}
