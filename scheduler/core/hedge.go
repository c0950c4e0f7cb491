package core

import (
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
)

// A race is the second run of a task that takes too long where it is, on the largest size
// class. The first one goes on meanwhile.
type race struct {
	worker *worker
	since  time.Time
}

// rival is the idle worker that could run a task a second time; nil if none could. In cohorts none
// may: quotas count what an action runs on, not what it might.
func (t *task) rival() *worker {
	q := t.pool.largest((*queue).served)
	if t.pool.cohort != nil || q == nil || q.class <= t.worker.queue.class {
		return nil
	}
	seat := t.pool.tree.Nearest(&t.item, q.class)
	if seat == nil {
		return nil
	}
	return seat.Owner.(*worker)
}

// mayHedge reports whether a task that a worker is given goes on after its Size.Timeout: there has to be
// somebody to start it again then.
func (t *task) mayHedge() bool {
	return t.spec.Size.Hedge && !t.outgrown && t.worker.queue.class == t.spec.Size.Class && t.rival() != nil
}

// runs notes that the command of a worker's task runs: from then on its time counts.
func (s *State) runs(w *worker) {
	if t := w.task; t.hedged && t.race == nil && t.timer.slot == 0 {
		s.timers.set(&t.timer, s.now.Add(t.spec.Size.Timeout))
	}
}

// hedge starts a task once more, on the largest size class, if a worker there is idle; else
// it looks again soon.
func (s *State) hedge(t *task) {
	w := t.rival()
	if w == nil {
		s.timers.set(&t.timer, s.now.Add(s.cfg.SyncInterval))
		return
	}
	s.tally.Hedges++
	w.unidle()
	t.race, t.late = &race{w, s.now}, true
	t.why = fmt.Sprintf("took longer than %s on size class %d", t.spec.Size.Timeout, t.worker.queue.class)
	t.resends = 0
	w.task, w.confirmed = t, false
	s.recharge(t, w)
	s.calls.run(w)
}

// recharge has the tree count a running task for the workers that it has now; the last one is w.
func (s *State) recharge(t *task, w *worker) {
	cost := t.worker.queue.cost()
	if t.race != nil {
		cost += t.race.worker.queue.cost()
	}
	t.pool.tree.Finish(&t.item)
	t.pool.tree.Start(&t.item, &w.seat, s.now, cost)
}

// leaveRace takes a worker from a task that another one runs, too.
func (s *State) leaveRace(w *worker) {
	t := w.task
	r := t.race
	w.task, t.race = nil, nil
	if w == r.worker {
		// Another one may be started, after as long again.
		t.late = false
		s.timers.set(&t.timer, s.now.Add(t.spec.Size.Timeout))
	} else {
		t.worker, t.started, t.outgrown, t.hedged = r.worker, r.since, true, false
		s.operations.changedAll(t)
	}
	s.recharge(t, t.worker)
}

// decides reports whether what a worker of a race reports ends it: a failure of the first run does not,
// nor does an end of the second that has nothing to do with the action.
func decides(t *task, w *worker, resp *repb.ExecuteResponse) bool {
	code := codes.Code(resp.GetStatus().GetCode())
	if w == t.race.worker {
		return code == codes.OK || code == codes.DeadlineExceeded
	}
	return code == codes.OK && resp.GetResult().GetExitCode() == 0
}
