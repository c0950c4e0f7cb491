package core

import (
	"container/list"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// A cohort is the workers that instances share by quotas.
//
// A nil cohort has no quotas: nothing waits for it or counts in it.
type cohort struct {
	quota.Cohort
	*clock
	cfg *Config
	// quotas are those of ledger, by instance.
	quotas map[string]quota.Quota
	ledger *quota.Ledger
	pools  []*pool
	// lines are those of all queues by instance, the oldest first.
	lines map[string][]*line
	// stirred: something may run that could not when the event began.
	stirred bool
	// preemptions counts the runs that were stopped.
	preemptions uint64
}

func newCohort(c quota.Cohort, now *clock, cfg *Config) *cohort {
	return &cohort{Cohort: c, clock: now, cfg: cfg, quotas: map[string]quota.Quota{}, lines: map[string][]*line{}, ledger: quota.NewLedger(cfg.MaxPreemptions)}
}

// A share is what quotas know of a task.
type share struct {
	// instance is its key: in the ledger, and on the first level of the tree.
	instance string
	// line and element are where it waits, since is since when.
	line    *line
	element *list.Element
	since   time.Time
	// run counts in cohort, which is nil while the task does not run.
	run    quota.Run
	cohort *cohort
	// mark is there while the task has to give way.
	mark *mark
}

// A line is what waits of one instance in one queue of a cohort. It exists while
// something does, or somebody gives way for it.
type line struct {
	queue    *queue
	instance string
	// tasks are in the order in which they came.
	tasks fifo[*task]
	// below is since when the instance is below its minimum; zero: it is not.
	below time.Time
	// marked counts the tasks that are to give way.
	marked int
	// timer runs until more have to give way, if nothing changes.
	timer timer.Timer
}

// grade admits the branches of instances.
func (c *cohort) grade(kind uint32, instance string) fair.Grade {
	switch c.ledger.Standing(instance, c.Cost(kind)) {
	case quota.AtMax:
		return fair.Wait
	case quota.BelowMin:
		return fair.First
	}
	return fair.Share
}

// admits reports whether an instance may ever run something on a queue's workers: one action takes no more
// there than its maximum.
func (q *queue) admits(instance string) bool {
	c := q.pool.cohort
	if c == nil {
		return true
	}
	most := c.quotas[levels.Bounded(instance)].Max
	return most == 0 || c.Cost(q.class) <= most
}

// shareOf returns what quotas know of a task, known from now on.
func shareOf(t *task) *share {
	if t.share == nil {
		t.share = &share{instance: levels.Bounded(t.spec.Instance)}
		t.share.run.Owner = t
	}
	return t.share
}

// enter has a task that waits in a queue of the cohort do so in a line.
func (c *cohort) enter(t *task) {
	if c == nil {
		return
	}
	q, sh := t.queue(), shareOf(t)
	l := q.lines[sh.instance]
	if l == nil {
		l = &line{queue: q, instance: sh.instance}
		l.timer.Owner = l
		if q.lines == nil {
			q.lines = map[string]*line{}
		}
		q.lines[sh.instance] = l
		c.lines[sh.instance] = append(c.lines[sh.instance], l)
	}
	if sh.since.IsZero() {
		sh.since = c.now
	}
	sh.line, sh.element = l, l.tasks.pushBack(t)
	c.arm(l)
}

// leave undoes it. The task is about to leave its queue.
func (c *cohort) leave(t *task) {
	if t.share == nil || t.share.line == nil {
		return
	}
	l := t.share.line
	l.tasks.remove(t.share.element)
	t.share.line, t.share.element = nil, nil
	c.arm(l)
}

// charge counts a task that a worker of the cohort has.
func (c *cohort) charge(t *task) {
	if c == nil || t.spec == nil {
		return
	}
	w, sh := t.worker(), shareOf(t)
	r := &sh.run
	r.Instance, r.Kind, r.Cost, r.Started = sh.instance, w.queue, c.Cost(w.queue.class), t.started
	r.Preempted, r.Shielded, r.Busy = int(t.preempted), w.spared(), false
	r.Priority = t.operations.first.spec.Priority
	for o := range t.operations.all() {
		r.Priority = min(r.Priority, o.spec.Priority)
	}
	sh.cohort, sh.since = c, time.Time{}
	c.settle(sh.instance, c.ledger.Start(r))
}

// discharge undoes it, if the task counts.
func (c *cohort) discharge(t *task) {
	sh := t.share
	if sh == nil || sh.cohort == nil {
		return
	}
	c.spare(t)
	sh.cohort = nil
	changed := c.ledger.End(&sh.run)
	c.stirred = c.stirred || changed
	c.settle(sh.instance, changed)
}

// set puts a quota in force; the zero Quota is none.
func (c *cohort) set(instance string, q quota.Quota) {
	c.quotas[instance] = q
	if q == (quota.Quota{}) {
		delete(c.quotas, instance)
	}
	c.ledger.Set(instance, q)
	c.stirred = true
	c.settle(instance, true)
}

// stopOverMax marks what an instance has running above its maximum, to give way to nobody.
func (c *cohort) stopOverMax(instance string) {
	for r := c.ledger.OverMax(instance); r != nil; r = c.ledger.OverMax(instance) {
		c.ledger.Mark(r)
		sh := r.Owner.(*task).share
		sh.mark = &mark{share: sh, deadline: c.now}
	}
}

// settle follows a change of what an instance uses or may use. If it changed what
// may run, it is asked for anew.
func (c *cohort) settle(instance string, changed bool) {
	for _, l := range slices.Clone(c.lines[instance]) {
		if changed {
			l.queue.pool.tree.Reconsider(instance)
		}
		c.arm(l)
	}
}

// forget drops a line in which nothing waits, and for which nobody gives way.
func (c *cohort) forget(l *line) {
	delete(l.queue.lines, l.instance)
	left := slices.DeleteFunc(c.lines[l.instance], func(x *line) bool { return x == l })
	if c.lines[l.instance] = left; len(left) == 0 {
		delete(c.lines, l.instance)
	}
}

// urge notes the priority of another operation of a task.
func (sh *share) urge(priority int32) {
	if sh != nil && sh.cohort != nil && priority < sh.run.Priority {
		sh.run.Priority = priority
		sh.cohort.ledger.Fix(&sh.run)
	}
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

// A QuotaUse is what an instance has of a cohort, what it uses now, and how many actions
// it has waiting there.
type QuotaUse struct {
	quota.Key
	quota.Use
	Waiting int
}

// uses returns the instances of the cohort in their order.
func (c *cohort) uses() []QuotaUse {
	waiting := map[string]int{}
	for instance := range c.quotas {
		waiting[instance] = 0
	}
	for instance := range c.ledger.Used() {
		waiting[instance] = 0
	}
	for _, p := range c.pools {
		for _, q := range p.queues {
			for instance, l := range q.lines {
				waiting[instance] += l.tasks.len()
			}
		}
	}
	uses := make([]QuotaUse, 0, len(waiting))
	for _, instance := range slices.Sorted(maps.Keys(waiting)) {
		uses = append(uses, QuotaUse{quota.Key{Cohort: c.Name, Instance: instance}, c.ledger.Of(instance), waiting[instance]})
	}
	return uses
}

// whyHeld says why an instance may start nothing on workers of a size class.
func (c *cohort) whyHeld(instance string, class uint32) string {
	u := c.ledger.Of(instance)
	return fmt.Sprintf("at its maximum: uses %d of %d %s of cohort %q, one more takes %d",
		u.Used, u.Max, c.unit(), c.Name, c.Cost(class))
}

// whyNever says why an instance may never start anything there; class is the smallest one.
func (c *cohort) whyNever(instance string, class uint32) string {
	return fmt.Sprintf("one action takes %d %s of cohort %q on the smallest worker, more than the maximum of instance name %q, %d",
		c.Cost(class), c.unit(), c.Name, instance, c.quotas[instance].Max)
}

// unit names what the cohort counts.
func (c *cohort) unit() string {
	if c.Unit == quota.Slots {
		return "slots"
	}
	return "size class units"
}
