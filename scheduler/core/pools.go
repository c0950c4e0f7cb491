package core

import "slices"

// enroll returns the worker that reports, known from now on, in the pool and
// queue it says it belongs to, with no call held; w is it if it is known, else nil.
func (s *State) enroll(w *worker, r *Report) *worker {
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
	p := s.pool(r.Prefix, r.Platform)
	w = &worker{key: r.Worker, id: r.ID, pool: p, queue: p.queue(r.SizeClass)}
	w.drained = s.workers.isDrained(w)
	w.timer.owner, w.seat.Owner, w.seat.Lane = w, w, r.SizeClass
	w.queue.workers++
	s.workers.add(w)
	return w
}

// pool returns the pool of a prefix and platform, made if need be.
func (s *State) pool(prefix string, platform Platform) *pool {
	key := poolKey{prefix, platform.Key()}
	p := s.pools[key]
	if p == nil {
		p = s.newPool(prefix, platform)
		s.pools[key] = p
	}
	return p
}

// serve notes whether a worker takes work.
func (s *State) serve(w *worker) {
	serving, resting := !w.prefersIdle && !w.drained, w.prefersIdle && !w.drained
	if w.serving == serving && w.resting == resting {
		return
	}
	q, open, served := w.queue, w.queue.open(), w.queue.served()
	s.withdraw(w)
	w.serving, w.resting = serving, resting
	s.shield(w)
	switch {
	case serving:
		q.serving++
		s.timers.stop(&q.rest)
	case resting:
		q.resting++
		if q.serving == 0 && q.rest.slot == 0 {
			s.timers.set(&q.rest, s.now.Add(s.cfg.MatchGrace))
		}
	}
	s.watch(q)
	switch {
	case q.open() && !open:
		s.rematchUnmatched(func(t *task) bool { return w.pool.serves(t.spec) })
	case !q.served():
		s.vacate(q)
	}
	if q.served() && !served {
		s.relieve(q)
	}
}

// withdraw takes a worker from those that serve its queue or rest; vacate follows.
func (s *State) withdraw(w *worker) {
	q := w.queue
	if w.serving {
		q.serving--
	}
	if w.resting {
		q.resting--
	}
	if q.resting == 0 {
		s.timers.stop(&q.rest)
	} else if q.serving == 0 && w.serving {
		s.timers.set(&q.rest, s.now.Add(s.cfg.MatchGrace))
	}
	w.serving, w.resting = false, false
}

// vacate moves the tasks of a queue that nobody serves, if there is another for them,
// or if it is no longer open. A declared one keeps them for a while.
func (s *State) vacate(q *queue) {
	if q.declared {
		s.watch(q)
		return
	}
	if q.waiting == 0 || q.served() {
		return
	}
	elsewhere := false
	for prefix := range prefixes(q.pool.prefix) {
		p := s.pools[poolKey{prefix, q.pool.platform.Key()}]
		elsewhere = elsewhere || p != nil && p.largest((*queue).served) != nil
	}
	if elsewhere || !q.open() {
		s.rematch(q.tasks())
	}
}

// relieve has a queue that is served again take what waits for those of its pool
// that are not.
func (s *State) relieve(q *queue) {
	for _, other := range q.pool.queues {
		s.vacate(other)
	}
}

// rematchUnmatched places those unmatched tasks that a queue has come for, which concerned, a quick look, says of
// all of them; the others keep their time.
func (s *State) rematchUnmatched(concerned func(*task) bool) {
	var found []*task
	for e := s.unmatched.l.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*task); concerned(t) && s.match(t.spec, t.class(), !t.impatient) != nil {
			found = append(found, t)
		}
	}
	s.rematch(found)
}

// remove forgets a worker, and its queue and pool if they were its alone. What
// it ran goes back to a queue.
func (s *State) remove(w *worker) {
	s.timers.stop(&w.timer)
	s.workers.remove(w)
	s.withdraw(w)
	if w.task != nil {
		// Before the queue is moved: what ran is older than what waits.
		s.lose(w)
	}
	w.pool.tree.Leave(&w.seat)
	s.vacate(w.queue)
	w.queue.workers--
	if w.queue.workers == 0 && !w.queue.declared {
		p := w.pool
		p.queues = slices.DeleteFunc(p.queues, func(q *queue) bool { return q == w.queue })
		if len(p.queues) == 0 {
			delete(s.pools, p.key())
			p.leaveCohort()
		}
	}
}
