package core

// enroll returns the worker that reports, known from now on, in the pool and
// queue it says it belongs to, with no call held; w is it if it is known, else nil.
func (s *State) enroll(w *worker, r *Report) *worker {
	if w != nil {
		w.unidle()
		if w.held {
			s.calls.answer(w, Reply{Do: Superseded, NextSync: s.now})
			s.timers.stop(&w.timer)
		}
		if w.pool.key() == (poolKey{r.Prefix, r.Platform.Key()}) && w.queue.class == r.SizeClass {
			return w
		}
		s.remove(w)
	}
	p := s.dispatch.pool(r.Prefix, r.Platform)
	w = &worker{key: r.Worker, id: r.ID, pool: p, queue: p.queue(r.SizeClass)}
	w.drained = s.workers.isDrained(w)
	w.timer.owner, w.seat.Owner, w.seat.Lane = w, w, r.SizeClass
	w.queue.workers++
	s.workers.add(w)
	return w
}

// remove forgets a worker, and its queue and pool if they were its alone. What
// it ran goes back to a queue.
func (s *State) remove(w *worker) {
	s.timers.stop(&w.timer)
	s.workers.remove(w)
	s.dispatch.withdraw(w)
	if w.task != nil {
		// Before the queue is moved: what ran is older than what waits.
		s.lose(w)
	}
	w.pool.tree.Leave(&w.seat)
	s.dispatch.vacate(w.queue)
	s.dispatch.forget(w)
}
