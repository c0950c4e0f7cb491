package core

import (
	"time"
)

// A Held is an operation whose action a worker has, as far as a scheduler that comes next has to know.
type Held struct {
	*Operation
	Queued, Started time.Time
	Attempts        int
	// The worker, as in its Report.
	Worker         string
	ID             map[string]string
	Prefix         string
	WorkerPlatform Platform
	SizeClass      uint32
}

// Held returns at most so many operations whose actions workers have, and have had since before a time. It looks at
// every worker.
func (s *State) Held(since time.Time, atMost int) (held []Held) {
	for _, w := range s.workers.byKey {
		t := w.task
		if t == nil || t.worker != w || t.spec == nil || t.started.After(since) {
			continue
		}
		for o := range t.operations.all() {
			if len(held) == atMost {
				return held
			}
			held = append(held, Held{
				Operation: o.spec, Queued: o.queued, Started: t.started, Attempts: int(t.attempts),
				Worker: w.key, ID: w.id, Prefix: w.pool.prefix, WorkerPlatform: w.pool.platform, SizeClass: w.queue.class,
			})
		}
	}
	return held
}

func (e Restore) apply(s *State) error {
	h := e.Held
	w := s.workers.byKey[h.Worker]
	if s.operations.byName[h.Name] != nil || w != nil && !w.away {
		return nil
	}
	if w == nil {
		w = s.enroll(nil, &Report{Worker: h.Worker, ID: h.ID, Prefix: h.Prefix, Platform: h.WorkerPlatform, SizeClass: h.SizeClass})
		w.away = true
		s.dispatch.serve(w)
		s.timers.set(&w.timer, s.now.Add(s.cfg.WorkerSlack))
	}
	a := actionOf(h.Digest)
	t := w.task
	if !w.pool.serves(h.Operation) || t != nil && t.action != a {
		return nil
	}
	if t != nil {
		s.join(t, s.operations.restore(h, &operation{}))
		return nil
	}
	t = &task{spec: h.Operation, action: a, queued: h.Queued, attempts: int32(h.Attempts), worker: w, started: h.Started, pool: w.pool}
	t.timer.owner, t.item.Owner = t, t
	w.task, w.confirmed = t, true
	s.inFlight.add(t)
	s.dispatch.executing++
	o := s.operations.restore(h, &t.alone)
	o.task = t
	t.operations.add(o)
	t.pool.cohort.charge(t)
	t.attach(o)
	w.pool.tree.Start(&t.item, &w.seat, s.now, w.queue.cost())
	s.operations.changed(o)
	return nil
}

// unclaimed reports whether a task was taken over and no client has come back for it.
func (t *task) unclaimed() bool {
	for o := range t.operations.all() {
		if !o.restored || o.waiters > 0 {
			return false
		}
	}
	return true
}

// forget drops the operations of a task that were taken over: its worker has not come back with it. It reports
// whether others are left, for which it is to run.
func (s *State) forget(t *task) bool {
	for o := range t.operations.all() {
		if !o.restored {
			continue
		}
		t.detach(o)
		t.operations.remove(o)
		s.operations.drop(o)
		s.timers.stop(&o.timer)
		o.task = nil
		s.operations.changed(o)
	}
	if t.operations.empty() {
		s.drop(t)
		return false
	}
	first := t.operations.first
	t.spec, t.queued = first.spec, first.queued
	return true
}
