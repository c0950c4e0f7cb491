package scheduler

import "slices"

// enroll returns the worker that reports, known from now on, in the pool and
// queue it says it belongs to, with no call held.
func (s *State) enroll(r Report) *worker {
	w := s.workers[r.Worker]
	if w != nil {
		s.unidle(w)
		if w.held {
			s.answer(w, Reply{Do: Superseded, NextSync: s.now})
			s.timers.stop(&w.timer)
		}
		if w.pool.key() == (poolKey{r.Prefix, r.Platform.Key()}) && w.queue.class == r.SizeClass {
			return w
		}
		s.remove(w)
	}
	key := poolKey{r.Prefix, r.Platform.Key()}
	p := s.pools[key]
	if p == nil {
		p = &pool{prefix: r.Prefix, platform: r.Platform}
		s.pools[key] = p
	}
	w = &worker{key: r.Worker, id: r.ID, pool: p, queue: p.queue(r.SizeClass)}
	w.drained = s.drains.match(w)
	w.timer.owner = w
	w.queue.workers++
	s.workers[w.key] = w
	return w
}

// serve notes whether a worker takes work. The first server of a queue brings
// the unmatched tasks that it can serve.
func (s *State) serve(w *worker, serving bool) {
	if w.serving == serving {
		return
	}
	if !serving {
		s.withdraw(w)
		s.vacate(w.queue)
		return
	}
	w.serving = true
	w.queue.serving++
	if w.queue.serving == 1 && s.unmatched.len() > 0 {
		s.rematchUnmatched()
	}
}

// withdraw takes a worker from those that serve its queue; vacate follows.
func (s *State) withdraw(w *worker) {
	if w.serving {
		w.serving = false
		w.queue.serving--
	}
}

// vacate moves the tasks of a queue that has lost its last server.
func (s *State) vacate(q *queue) {
	if q.serving == 0 {
		s.rematch(q.tasks.all())
	}
}

// rematchUnmatched places those unmatched tasks that a queue has come for; the
// others keep their time.
func (s *State) rematchUnmatched() {
	var found []*task
	for _, t := range s.unmatched.all() {
		if s.match(t.spec) != nil {
			found = append(found, t)
		}
	}
	s.rematch(found)
}

// remove forgets a worker, and its queue and pool if they were its alone. What
// it ran goes back to a queue.
func (s *State) remove(w *worker) {
	s.timers.stop(&w.timer)
	s.connect(w, 0)
	delete(s.workers, w.key)
	s.withdraw(w)
	if w.task != nil {
		// Before the queue is moved: what ran is older than what waits.
		s.lose(w.task)
	}
	s.vacate(w.queue)
	w.queue.workers--
	if w.queue.workers == 0 {
		p := w.pool
		p.queues = slices.DeleteFunc(p.queues, func(q *queue) bool { return q == w.queue })
		if len(p.queues) == 0 {
			delete(s.pools, p.key())
		}
	}
}
