package core

import (
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// lingering is how long a run goes on, whoever waits, after its last client has stopped waiting for
// it: a client whose stream has broken needs a moment to come back, and would lose all that has run
// of its action.
const lingering = 5 * time.Second

// spares are the runs of a queue that no client waits for.
type spares struct {
	queue *queue
	// tasks are those that ran when the last client stopped waiting for them, in that order; they
	// may have ended, or be wanted again.
	tasks []*task
	// timer is when the first of them yields, while others wait.
	timer timer.Timer
}

// add records that a running task has no waiting client.
func (s *spares) add(t *task) {
	if len(s.tasks) > 2*s.queue.workers {
		s.tasks = slices.DeleteFunc(s.tasks, func(t *task) bool { return !s.has(t) })
	}
	s.tasks = append(s.tasks, t)
}

func (s *spares) has(t *task) bool {
	w := t.worker()
	return w != nil && w.queue == s.queue && !t.wanted()
}

// first returns the run that no client has waited for the longest; nil if there is none.
func (s *spares) first() *run {
	for len(s.tasks) > 0 {
		if t := s.tasks[0]; s.has(t) {
			return t.run()
		}
		s.drop()
	}
	return nil
}

// drop forgets the first task.
func (s *spares) drop() {
	s.tasks[0] = nil
	s.tasks = s.tasks[1:]
}

// yields is when a run that no client waits for may be stopped for others, by Clock.Awake.
func (r *run) yields() time.Duration { return timer.After(r.left, lingering) }

// unwanted makes the worker of a task that no client wants one of the first to yield to queued
// tasks.
func (d *dispatcher) unwanted(w *worker) {
	w.task.run().left = d.Awake()
	q := w.task.worker().queue
	q.spares.add(w.task)
	d.claimSpares(q)
}

// claimSpares wakes the workers of a queue that run for no client and must yield now, while tasks
// wait.
func (d *dispatcher) claimSpares(q *queue) { d.claim(q, q.waiting) }

// claim does so for some, once for each.
func (d *dispatcher) claim(q *queue, most int) {
	for s := &q.spares; q.waiting > 0; most-- {
		r := s.first()
		if r == nil {
			d.Timers.Stop(&s.timer)
			return
		}
		if at := r.yields(); at > d.Awake() {
			d.Timers.Set(&s.timer, d.When(at))
			return
		}
		if most == 0 {
			return
		}
		s.drop()
		d.calls.wake(r.worker)
	}
}

// givesWay reports whether a worker that calls must stop its task, which no client wants, because
// it would get another one. A task that is about to be stored, or whose second run continues
// elsewhere, is not stopped, nor is one whose client has only just gone.
func (d *dispatcher) givesWay(w *worker) bool {
	return !w.task.wanted() && w.task.race() == nil && w.takes == Serving &&
		w.stage != event.Uploading && !d.isSettling() && w.task.run().yields() <= d.Awake() &&
		w.pool.tree.Next(&w.entry, d.Now) != nil
}
