package core

import (
	"container/list"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// A cohort is the workers that instances share by quotas.
type cohort struct {
	quota.Cohort
	// quotas are those of ledger, by instance.
	quotas map[string]quota.Quota
	ledger *quota.Ledger
	pools  []*pool
	// stirred: something may run that could not when the event began.
	stirred bool
	// preemptions counts the runs that were stopped.
	preemptions uint64
}

func newCohort(c quota.Cohort, maxPreemptions int) *cohort {
	return &cohort{Cohort: c, quotas: map[string]quota.Quota{}, ledger: quota.NewLedger(maxPreemptions)}
}

// A share is what quotas know of a task.
type share struct {
	// instance is its key: in the ledger, and on the first level of the tree.
	instance string
	// line and place are where it waits, since is since when.
	line  *line
	place *list.Element
	since time.Time
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
	timer timer
}

// newPool returns a pool without workers.
func (s *State) newPool(prefix string, platform Platform) *pool {
	p := &pool{prefix: prefix, platform: platform, levels: s.cfg.levels(prefix, platform)}
	config, ok := s.cfg.Quotas.Of(func(name, value string) bool {
		return slices.Contains(platform.properties, property{name, value})
	})
	if !ok {
		p.tree = newTree(p.levels, nil)
		return p
	}
	c := s.cohort(config.Name)
	p.cohort, c.pools = c, append(c.pools, p)
	if len(p.levels) == 0 || p.levels[0].Key != KeyInstance {
		p.levels = append([]Level{{Key: KeyInstance}}, p.levels...)
	}
	p.tree = newTree(p.levels, c.grade)
	return p
}

// cohort returns the one of a name; nil if there is none.
func (s *State) cohort(name string) *cohort {
	for _, c := range s.cohorts {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (p *pool) leaveCohort() {
	if c := p.cohort; c != nil {
		c.pools = slices.DeleteFunc(c.pools, func(x *pool) bool { return x == p })
	}
}

// grade admits the branches of instances.
func (c *cohort) grade(lane uint32, instance string) fair.Grade {
	switch c.ledger.Standing(instance, c.Cost(lane)) {
	case quota.AtMax:
		return fair.Wait
	case quota.BelowMin:
		return fair.First
	}
	return fair.Share
}

// hasRoom reports whether an instance may ever run something on a queue's workers: one action takes no more
// there than its maximum.
func (q *queue) hasRoom(instance string) bool {
	c := q.pool.cohort
	if c == nil {
		return true
	}
	most := c.quotas[bounded(instance)].Max
	return most == 0 || c.Cost(q.class) <= most
}

// rehouse moves what waits of an instance where it has no room, and what waits for it to have some.
func (s *State) rehouse(c *cohort, instance string) {
	for _, p := range c.pools {
		for _, q := range p.queues {
			if l := q.lines[instance]; l != nil && !q.hasRoom(instance) {
				s.rematch(l.tasks.all())
			}
		}
	}
	s.rematchUnmatched(func(t *task) bool { return bounded(t.spec.Instance) == instance })
}

// shareOf returns what quotas know of a task, known from now on.
func shareOf(t *task) *share {
	if t.share == nil {
		t.share = &share{instance: bounded(t.spec.Instance)}
		t.share.run.Owner = t
	}
	return t.share
}

// share returns what is counted of what a worker does; nil if nothing is.
func (w *worker) share() *share {
	if w.task == nil || w.task.share == nil || w.task.share.cohort == nil {
		return nil
	}
	return w.task.share
}

// lineUp has a task that waits in a queue do so in a line.
func (s *State) lineUp(t *task) {
	q := t.queue
	if q.pool.cohort == nil {
		return
	}
	sh := shareOf(t)
	l := q.lines[sh.instance]
	if l == nil {
		l = &line{queue: q, instance: sh.instance}
		l.timer.owner = l
		if q.lines == nil {
			q.lines = map[string]*line{}
		}
		q.lines[sh.instance] = l
	}
	if sh.since.IsZero() {
		sh.since = s.now
	}
	sh.line, sh.place = l, l.tasks.pushBack(t)
	s.arm(l)
}

// leaveLine undoes it. The task is about to leave its queue.
func (s *State) leaveLine(t *task) {
	if t.share == nil || t.share.line == nil {
		return
	}
	l := t.share.line
	l.tasks.remove(t.share.place)
	t.share.line, t.share.place = nil, nil
	s.arm(l)
}

// charge counts a task that a worker has, in the cohort if there is one.
func (s *State) charge(t *task) {
	w := t.worker
	c := w.pool.cohort
	if c == nil || t.spec == nil {
		return
	}
	sh := shareOf(t)
	r := &sh.run
	r.Instance, r.Lane, r.Cost, r.Started = sh.instance, w.queue, c.Cost(w.queue.class), t.started
	r.Preempted, r.Shielded, r.Busy = int(t.preempted), w.spared(), false
	r.Priority = t.operations.first.spec.Priority
	for o := range t.operations.all() {
		r.Priority = min(r.Priority, o.spec.Priority)
	}
	sh.cohort, sh.since = c, time.Time{}
	s.settleQuota(c, sh.instance, c.ledger.Start(r))
}

// discharge undoes it.
func (s *State) discharge(t *task) {
	sh := t.share
	if sh == nil || sh.cohort == nil {
		return
	}
	c := sh.cohort
	s.spare(t)
	sh.cohort = nil
	changed := c.ledger.End(&sh.run)
	c.stirred = c.stirred || changed
	s.settleQuota(c, sh.instance, changed)
}

// settleQuota follows a change of what an instance uses or may use. If it changed what
// may run, it is asked for anew.
func (s *State) settleQuota(c *cohort, instance string, changed bool) {
	for _, p := range c.pools {
		if changed {
			p.tree.Reconsider(instance)
		}
		for _, q := range p.queues {
			if l := q.lines[instance]; l != nil {
				s.arm(l)
			}
		}
	}
}

// urge notes the priority of another operation of a task.
func (s *State) urge(t *task, priority int32) {
	if sh := t.share; sh != nil && sh.cohort != nil && priority < sh.run.Priority {
		sh.run.Priority = priority
		sh.cohort.ledger.Fix(&sh.run)
	}
}

// spared reports whether the task of a worker is not to be stopped for others.
func (w *worker) spared() bool { return w.uploading || !w.serving || w.away }

// shield notes whether the task of a worker may be stopped: not if it is about to end,
// nor if the worker would take nothing instead. It rather is if its command runs: on a worker
// that fetches ahead others may have to wait for a place where one does.
func (s *State) shield(w *worker) {
	sh := w.share()
	if sh == nil {
		return
	}
	if shielded := w.spared(); shielded != sh.run.Shielded || w.running != sh.run.Busy {
		sh.run.Shielded, sh.run.Busy = shielded, w.running
		sh.cohort.ledger.Fix(&sh.run)
	}
}

// offerIdle gives what may run now to workers that are idle.
func (s *State) offerIdle(c *cohort) {
	c.stirred = false
	for _, p := range c.pools {
		for _, q := range p.queues {
			for q.waiting > 0 {
				t := q.head(s.now)
				if t == nil {
					break
				}
				seat := p.tree.Nearest(&t.item, q.class)
				if seat == nil || !s.next(seat.Owner.(*worker)) {
					break
				}
			}
		}
	}
}
