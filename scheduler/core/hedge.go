package core

import (
	"fmt"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// hedges are second runs of tasks that take too long, on the largest size class, while the first go
// on.
type hedges struct {
	*timer.Clock
	cfg        *tuning.Config
	operations *operations
	calls      *calls
	// begun counts hedges, won those whose result counted.
	begun, won uint64
}

// runs notes that the command of a worker's task runs: from then on its time counts.
func (h *hedges) runs(w *worker) {
	if t := w.task; t.course == hedged && !t.timer.IsSet() {
		h.Timers.Set(&t.timer, h.Now.Add(t.spec.Size.Timeout))
	}
}

// start starts a task once more, on the largest size class, if a worker there is idle and a client
// waits for the task; otherwise it looks again soon.
func (h *hedges) start(t *task) {
	w := t.rival()
	if w == nil || !t.wanted() {
		h.Timers.Set(&t.timer, h.Now.Add(h.cfg.SyncInterval))
		return
	}
	h.begun++
	w.unidle()
	first := t.run()
	first.race, first.resends, t.course = &race{w, h.Now}, 0, racing
	t.explain(fmt.Sprintf("took longer than %s on size class %d", t.spec.Size.Timeout, first.worker.queue.class))
	w.task, w.duty = t, assigned
	t.recharge(w, h.Now)
	h.calls.run(w)
}

// decide handles the report of a worker of a race. If the report ends the race, the other worker
// must stop; otherwise the worker leaves the race and decide returns false.
func (h *hedges) decide(w *worker, resp *repb.ExecuteResponse) bool {
	t := w.task
	if !decides(t, w, resp) {
		h.leave(w)
		return false
	}
	other := t.race().worker
	if w == other {
		h.won++
		other = t.worker()
	}
	h.calls.take(other, event.Overtaken)
	h.calls.stop(other, t.ran())
	h.leave(other)
	return true
}

// leave takes a worker from a task that another one runs, too.
func (h *hedges) leave(w *worker) {
	t := w.task
	r := t.race()
	w.free()
	t.run().race = nil
	if w == r.worker {
		// Another one may be started, after as long again.
		t.course = hedged
		h.Timers.Set(&t.timer, h.Now.Add(t.spec.Size.Timeout))
	} else {
		t.pass(r.worker)
		t.started, t.course = r.since, overtaken
		h.operations.changedAll(t)
	}
	t.recharge(t.worker(), h.Now)
}
