package core

import (
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
)

// hedges are second runs of tasks that take too long, on the largest size class, while the first go on.
type hedges struct {
	*clock
	cfg        *Config
	operations *operations
	calls      *calls
	// begun counts them, won those whose result was taken.
	begun, won uint64
}

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
func (h *hedges) runs(w *worker) {
	if t := w.task; t.hedged && t.race == nil && t.timer.slot == 0 {
		h.timers.set(&t.timer, h.now.Add(t.spec.Size.Timeout))
	}
}

// start starts a task once more, on the largest size class, if a worker there is idle; else
// it looks again soon.
func (h *hedges) start(t *task) {
	w := t.rival()
	if w == nil {
		h.timers.set(&t.timer, h.now.Add(h.cfg.SyncInterval))
		return
	}
	h.begun++
	w.unidle()
	t.race, t.late = &race{w, h.now}, true
	t.why = fmt.Sprintf("took longer than %s on size class %d", t.spec.Size.Timeout, t.worker.queue.class)
	t.resends = 0
	w.task, w.confirmed = t, false
	t.recharge(w, h.now)
	h.calls.run(w)
}

// decide takes what a worker of a race reports. If it ends the race the other one is to stop; else the worker leaves
// it, and decide is false.
func (h *hedges) decide(w *worker, resp *repb.ExecuteResponse) bool {
	t := w.task
	if !decides(t, w, resp) {
		h.leave(w)
		return false
	}
	other := t.race.worker
	if w == other {
		h.won++
		other = t.worker
	}
	other.stopping = t.action
	h.leave(other)
	return true
}

// leave takes a worker from a task that another one runs, too.
func (h *hedges) leave(w *worker) {
	t := w.task
	r := t.race
	w.task, t.race = nil, nil
	if w == r.worker {
		// Another one may be started, after as long again.
		t.late = false
		h.timers.set(&t.timer, h.now.Add(t.spec.Size.Timeout))
	} else {
		t.worker, t.started, t.outgrown, t.hedged = r.worker, r.since, true, false
		h.operations.changedAll(t)
	}
	t.recharge(t.worker, h.now)
}

// recharge has the tree count a running task for the workers that it has now; the last one is w.
func (t *task) recharge(w *worker, now time.Time) {
	cost := t.worker.queue.cost()
	if t.race != nil {
		cost += t.race.worker.queue.cost()
	}
	t.pool.tree.Finish(&t.item)
	t.pool.tree.Start(&t.item, &w.seat, now, cost)
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
