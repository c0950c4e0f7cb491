package core

// settled ends the time in which nothing is given to workers (Config.Settle). It lets the workers that came
// meanwhile, in the order of their names, have what waits.
func (s *State) settled() {
	for _, w := range s.workers.sorted() {
		if w.held {
			s.dispatch.offer(w)
		}
	}
}
