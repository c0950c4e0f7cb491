package core

import (
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
)

// A cohort is the pools that instances share by quotas.
type cohort struct {
	*preemption.Cohort
	pools []*pool
}

// capacity is what the workers of a cohort that take work can run at once.
func (c *cohort) capacity() (n int64) {
	for _, p := range c.pools {
		for _, q := range p.queues {
			n += int64(q.serving) * c.Cost(q.class)
		}
	}
	return n
}

// admits reports whether an instance may ever run something on a queue's workers.
func (q *queue) admits(instance string) bool {
	return q.quotas == nil || q.quotas.Admits(levels.Bounded(instance))
}

// quotaShare returns what quotas know of a task, known from now on.
func (t *task) quotaShare() *preemption.Share {
	if t.share == nil {
		t.share = preemption.NewShare(t, levels.Bounded(t.spec.Instance))
	}
	return t.share
}

// charge has quotas count a task that a worker has.
func (t *task) charge() {
	w := t.worker()
	if w.queue.quotas == nil || t.spec == nil {
		return
	}
	r := preemption.Run{
		Started: t.started, Preempted: int(t.preempted), Shielded: w.spared(),
		Priority: t.operations.first.spec.Priority,
	}
	for o := range t.operations.all() {
		r.Priority = min(r.Priority, o.spec.Priority)
	}
	w.queue.quotas.Charge(t.quotaShare(), r)
}

// share returns what is counted of what a worker does; nil if nothing is.
func (w *worker) share() *preemption.Share {
	if w.task == nil || !w.task.share.Counts() {
		return nil
	}
	return w.task.share
}

// claim returns for whom the task of a worker is to give way; nil if it need not.
func (w *worker) claim() *preemption.Line { return w.share().Claim() }

// shield notes whether the task of a worker may be stopped: not if it is about to end,
// nor if the worker would take nothing instead. It rather is if its command runs: on a worker
// that fetches ahead others may have to wait for a place where one does.
func (w *worker) shield() {
	if sh := w.share(); sh != nil {
		sh.Shield(w.spared(), w.stage == event.Running)
	}
}
