package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/spill"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// Check returns an inconsistency of a State between events; "" if there is none. It looks at
// everything. It is for tests, and to find the event that broke a State.
func (s *State) Check() string { return (*checker)(s).check() }

type checker State

func (s *checker) check() string {
	for _, part := range []func() string{s.checkTasks, s.checkWorkers, s.checkOperations, s.checkQuotas} {
		if problem := part(); problem != "" {
			return problem
		}
	}
	return ""
}

// tasks returns each task with the number of locations it is at.
func (s *checker) tasks() map[*task]int {
	locations := map[*task]int{}
	for _, t := range s.dispatch.unmatched.All() {
		locations[t]++
	}
	for p := range s.dispatch.pools.All() {
		for _, q := range p.queues {
			for _, t := range q.tasks() {
				locations[t]++
			}
		}
	}
	for _, q := range s.left() {
		for _, t := range q.tasks() {
			locations[t]++
		}
	}
	for _, w := range s.workers.All() {
		if w.task != nil {
			locations[w.task]++
		}
	}
	return locations
}

// left returns the queues of pools that are gone, from which tasks are still to be moved.
func (s *checker) left() (queues []*queue) {
	for _, l := range s.dispatch.sweeps.Lines() {
		if q, ok := l.Owner.(*queue); ok && s.dispatch.pools.Get(q.pool.Offer) != q.pool {
			queues = append(queues, q)
		}
	}
	return queues
}

func (s *checker) checkTasks() string {
	queued, executing := 0, 0
	if problem := s.checkLine(&s.dispatch.unmatched); problem != "" {
		return problem
	}
	locations := s.tasks()
	for t, n := range locations {
		r := t.race()
		if (n == 2) != (r != nil) || n > 2 {
			return fmt.Sprintf("task %s is at %d locations, race %v", t.action, n, r)
		}
		if (r != nil) != (t.course == racing) || r != nil && (r.worker.task != t || r.worker == t.worker()) {
			return fmt.Sprintf("task %s races: %t, course %d", t.action, r != nil, t.course)
		}
		w, q := t.worker(), t.queue()
		if w != nil {
			executing++
			if w.task != t || s.workers.Get(w.Key) != w {
				return fmt.Sprintf("task %s is with a worker that does not have it", t.action)
			}
		} else {
			queued++
			if t.counted() >= s.cfg.MaxAttempts {
				return fmt.Sprintf("task %s is queued after %d attempts", t.action, t.attempts)
			}
		}
		orphan := t.spec == nil
		if orphan != t.operations.empty() {
			return fmt.Sprintf("task %s: orphan %t, operations %v", t.action, orphan, t.operations)
		}
		wanting := 0
		for o := range t.operations.all() {
			if o.wanted {
				wanting++
			}
			if o.wanted != (o.waiters > 0) && !o.restored {
				return fmt.Sprintf("operation %s is wanted: %t, by %d", o.spec.Name, o.wanted, o.waiters)
			}
		}
		if wanting != int(t.wanting) {
			return fmt.Sprintf("task %s counts %d wanted operations, has %d", t.action, t.wanting, wanting)
		}
		_, none := t.at.(unmatched)
		if none != (t.pool == nil) || q != nil && q.pool != t.pool || w != nil && w.pool != t.pool || t.at == nil {
			return fmt.Sprintf("task %s is in the tree of another pool", t.action)
		}
		if t.item.Waits() != (q != nil) {
			return fmt.Sprintf("task %s: waiting in the tree: %t", t.action, t.item.Waits())
		}
		hedges := w != nil && t.course == hedged
		if set := t.timer.IsSet(); set != (orphan || none || q != nil && t.avoids()) && !(set && hedges) {
			return fmt.Sprintf("task %s: timer %t, orphan %t, unmatched %t", t.action, t.timer.IsSet(), orphan, none)
		}
		if none && !s.dispatch.unmatched.IsSwept() && s.dispatch.pools.queueFor(t) != nil {
			return fmt.Sprintf("task %s is unmatched and has a queue", t.action)
		}
		if !slices.Contains(slices.Collect(s.inFlight.of(t).of(t.action)), t) {
			return fmt.Sprintf("task %s is not in flight", t.action)
		}
	}
	if queued != s.dispatch.queued || executing != s.dispatch.executing {
		return fmt.Sprintf("counted %d+%d tasks, there are %d+%d", s.dispatch.queued,
			s.dispatch.executing, queued, executing)
	}
	for i, f := range []flights{s.inFlight.shared, s.inFlight.private} {
		for a, first := range f {
			last := first.before
			for t := range f.of(a) {
				if locations[t] == 0 || t.action != a || t.private != (i == 1) {
					return fmt.Sprintf("task %s is in flight as %s, private %t, and at %d locations",
						t.action, a, t.private, locations[t])
				}
				if t != first && t.before.after != t || t.after == nil && t != last {
					return fmt.Sprintf("tasks of action %s are not in order", a)
				}
			}
		}
	}
	return ""
}

func (s *checker) checkWorkers() string {
	idling := 0
	for _, w := range s.workers.All() {
		if w.entry.Waits() {
			idling++
		}
	}
	if idling != s.dispatch.pools.idling {
		return fmt.Sprintf("counted %d idle workers, there are %d", s.dispatch.pools.idling, idling)
	}
	if problem := s.workers.Check(); problem != "" {
		return problem
	}
	if problem := s.orphans.Check(); problem != "" {
		return problem
	}
	perQueue := map[*queue][5]int{}
	for key, w := range s.workers.All() {
		n := perQueue[w.queue]
		n[0]++
		if w.takes == Serving {
			n[1]++
		}
		if w.takes == Resting {
			n[2]++
		}
		if w.takes.isDrained() {
			n[3]++
		}
		if w.takes == Suspended {
			n[4]++
		}
		perQueue[w.queue] = n
		if problem := s.checkWorker(key, w); problem != "" {
			return problem
		}
	}
	return s.checkQueues(perQueue)
}

// checkWorker checks one worker.
func (s *checker) checkWorker(key string, w *worker) string {
	switch {
	case s.dispatch.pools.Get(w.pool.Offer) != w.pool || !slices.Contains(w.pool.queues, w.queue):
		return fmt.Sprintf("worker %s is not where it belongs", key)
	case !w.timer.IsSet():
		return fmt.Sprintf("worker %s has no deadline", key)
	case w.entry.Waits() != (w.isHeld() && w.takes == Serving && !s.dispatch.isSettling()) &&
		!s.reviews.isBehind():
		return fmt.Sprintf("worker %s: held %t, serving %t, idle %t", key, w.isHeld(), w.takes == Serving, w.entry.Waits())
	case w.isHeld() && (w.task != nil || w.takes.prefersIdle()):
		return fmt.Sprintf("worker %s waits although it has work or wants none", key)
	case w.takes == Unreported || w.takes.isDrained() != s.drains.Matches(w.Attribute) && !s.reviews.isBehind():
		return fmt.Sprintf("worker %s: availability %d", key, w.takes)
	case (w.takes == Suspended) != (!w.takes.isDrained() && w.takes != Resting && w.program.withholds(w)):
		return fmt.Sprintf("worker %s: availability %d, its program is of standing %d", key,
			w.takes, w.program.record.Standing())
	case (w.duty == assigned || w.duty == confirmed) != (w.task != nil) && w.duty != away:
		return fmt.Sprintf("worker %s: duty %d, task %t", key, w.duty, w.task != nil)
	case w.task != nil && !w.pool.Serves(w.task.spec0(w)):
		return fmt.Sprintf("worker %s runs an action that it does not serve", key)
	}
	return ""
}

// checkQueues compares the counters of queues with their content; perQueue are the workers of each,
// as the queue counts them.
func (s *checker) checkQueues(perQueue map[*queue][5]int) string {
	for p := range s.dispatch.pools.All() {
		if len(p.queues) == 0 {
			return fmt.Sprintf("pool %v has no queues", p.Key())
		}
		for _, q := range p.queues {
			n := perQueue[q]
			if n != [5]int{q.workers, q.serving, q.resting, q.drained, q.suspended} ||
				q.workers == 0 && !q.declared && !q.line.IsSwept() {
				return fmt.Sprintf("queue %v/%d counts %d, %d, %d and %d workers, has %v", p.Key(),
					q.class, q.workers, q.serving, q.resting, q.suspended, n)
			}
			tasks, root := slices.DeleteFunc(q.tasks(), func(t *task) bool { return !t.wanted() }), fair.View{}
			for root = range p.tree.Branches(q.class) {
				break
			}
			if len(tasks) != q.waiting ||
				q.waiting > 0 && !q.open() && !q.declared && !q.line.IsSwept() ||
				root.Idle > 0 && q.keepsIdle() && !(*State)(s).isBehind() {
				return fmt.Sprintf("queue %v/%d: %d tasks, counted %d, open %t, %d idle", p.Key(),
					q.class, len(tasks), q.waiting, q.open(), root.Idle)
			}
			for _, t := range tasks {
				if other := s.dispatch.pools.queueFor(t); !q.line.IsSwept() && !q.served() &&
					!q.declared && other.served() {
					return fmt.Sprintf("task %s waits where no worker serves, although those of %v do", t.action, other.pool.Key())
				}
			}
			if n := len(q.tasks()) - len(tasks); n != len(q.parked) {
				return fmt.Sprintf("queue %v/%d has %d tasks without clients, and %d that are parked",
					p.Key(), q.class, n, len(q.parked))
			}
			sum := spill.Load{Typical: q.load.Typical}
			for _, t := range tasks {
				sum.Add(t.expected(q.size()), 1)
			}
			if sum != q.load {
				return fmt.Sprintf("queue %v/%d counts %+v, has %+v", p.Key(), q.class, q.load, sum)
			}
			if problem := checkPrograms(q); problem != "" {
				return fmt.Sprintf("queue %v/%d: %s", p.Key(), q.class, problem)
			}
			if problem := s.checkLine(&q.line); problem != "" {
				return fmt.Sprintf("queue %v/%d: %s", p.Key(), q.class, problem)
			}
			if a := &q.absence; q.away && q.line.Len() > 0 &&
				(!a.timer.IsSet() || s.Timers.When(&a.timer).After(s.When(a.ends(q.line.First())))) {
				return fmt.Sprintf("queue %v/%d is away, and what waits does so for ever", p.Key(), q.class)
			}
			if q.away != q.expectsSomebody() {
				return fmt.Sprintf("queue %v/%d is away %t, declared %t, open %t", p.Key(), q.class,
					q.away, q.declared, q.open())
			}
			if q.rest.IsSet() && (q.serving > 0 || q.resting == 0) {
				return fmt.Sprintf("queue %v/%d rests with %d serving, %d resting", p.Key(),
					q.class, q.serving, q.resting)
			}
		}
	}
	return ""
}

// keepsIdle reports whether an idle worker of a queue could have one of its tasks.
func (q *queue) keepsIdle() bool {
	idle := func(w *worker) bool { return w.entry.Waits() }
	for _, p := range q.programs {
		if !slices.ContainsFunc(p.positions, idle) {
			continue
		}
		for _, t := range q.line.All() {
			if t.wanted() && !t.avoidsProgram(p) && q.mayRunMore(levels.Bounded(t.spec.Instance)) {
				return true
			}
		}
	}
	return false
}

// checkLine compares the counters of a line of tasks with its content.
func (s *checker) checkLine(l *sweep.Line[*task]) string {
	q, _ := l.Owner.(*queue)
	impatient := 0
	for _, t := range l.All() {
		if !t.waitsIn(q) {
			return fmt.Sprintf("task %s is out of line", t.action)
		}
		if t.impatient {
			impatient++
		}
	}
	if l.IsSwept() != slices.Contains(s.dispatch.sweeps.Lines(), l) || q != nil && impatient != q.impatient {
		return fmt.Sprintf("%d tasks are in line, %d impatient, swept %t", l.Len(), impatient, l.IsSwept())
	}
	return l.Check()
}

// checkPrograms compares the counters of programs with their content.
func checkPrograms(q *queue) string {
	workers, ill := 0, 0
	for key, p := range q.programs {
		workers += len(p.positions)
		if !p.record.IsWell() {
			ill++
		}
		if !q.alike.Has(p, p.circumstances) {
			return fmt.Sprintf("program %s is not among those like it", key)
		}
		if len(p.positions) == 0 || p.key != key || p.queue != q ||
			slices.ContainsFunc(p.positions, func(w *worker) bool { return w.program != p }) {
			return fmt.Sprintf("program %s is not where it belongs", key)
		}
		if p.timer.IsSet() != (p.record.Standing() == trust.Suspended) ||
			p.tried != nil && p.record.Standing() != trust.OnTrial {
			return fmt.Sprintf("program %s: standing %d, timer %t, tried %t", key,
				p.record.Standing(), p.timer.IsSet(), p.tried != nil)
		}
	}
	if workers != q.workers || ill != q.ill || q.suspended > 0 && !q.served() {
		return fmt.Sprintf("programs have %d workers and %d fail; counted %d and %d; %d suspended, served %t",
			workers, ill, q.workers, q.ill, q.suspended, q.served())
	}
	return ""
}

// spec0 is the task's operation, or for an orphan one that its worker serves.
func (t *task) spec0(w *worker) *request.Operation {
	if t.spec != nil {
		return t.spec
	}
	return &request.Operation{Instance: w.pool.Prefix, Platform: w.pool.Platform}
}

func (s *checker) checkOperations() string {
	locations, done := s.tasks(), 0
	clients := map[string]int{}
	for _, o := range s.operations.byName {
		if c := o.spec.Client; c != "" && !o.done() {
			clients[c]++
		}
	}
	if !maps.Equal(clients, s.operations.clients) {
		return fmt.Sprintf("clients are counted as %v, are %v", s.operations.clients, clients)
	}
	if problem := s.checkListed(); problem != "" {
		return problem
	}
	for name, o := range s.operations.byName {
		if o.done() {
			done++
			if o.task != nil || o.timer.IsSet() {
				return fmt.Sprintf("operation %s is done and has a task, or a timer", name)
			}
			continue
		}
		if locations[o.task] == 0 || !slices.Contains(slices.Collect(o.task.operations.all()), o) {
			return fmt.Sprintf("operation %s is lost", name)
		}
		if o.timer.IsSet() != (o.waiters == 0) {
			return fmt.Sprintf("operation %s has %d waiters, timer %t", name, o.waiters, o.timer.IsSet())
		}
	}
	if done != s.operations.completed.Len() || done > s.cfg.MaxCompleted {
		return fmt.Sprintf("%d operations are done, %d are kept", done, s.operations.completed.Len())
	}
	if done > 0 && (!s.operations.expiry.IsSet() ||
		s.Timers.When(&s.operations.expiry).After(s.operations.completed.At(0).until)) {
		return "done operations stay for ever"
	}
	return s.Timers.Check()
}

// checkListed checks that operations that are not done, and no others, are in the list of open
// ones.
func (s *checker) checkListed() string {
	ops := s.operations
	listed := map[*operation]bool{}
	for number, o := range ops.open.After(0, 0) {
		if listed[o] = true; o.age != number || o.task == nil || ops.byName[o.spec.Name] != o {
			return fmt.Sprintf("operation %s is listed as %d, is %d", o.spec.Name, number, o.age)
		}
	}
	open := 0
	for _, o := range ops.byName {
		if !o.done() {
			open++
		}
	}
	if len(listed) != open || ops.open.Len() != open {
		return fmt.Sprintf("%d operations are not done, %d are listed, counted %d", open, len(listed), ops.open.Len())
	}
	return ""
}

// checkQuotas compares the counters of quotas with the running tasks.
func (s *checker) checkQuotas() string {
	there := map[*cohort]*preemption.Counted{}
	for _, c := range s.dispatch.pools.cohorts {
		there[c] = &preemption.Counted{
			Used: map[string]int64{}, Marked: map[*preemption.Line]int{}, Waiting: map[*preemption.Queue]map[string]int{},
			Takers: map[*preemption.Queue]bool{},
		}
	}
	for _, w := range s.workers.All() {
		t, c := w.task, w.pool.cohort
		if t == nil {
			continue
		}
		sh := w.share()
		if (sh != nil) != (c != nil && t.spec != nil) {
			return fmt.Sprintf("task %s counts: %t", t.action, sh != nil)
		}
		if sh == nil {
			continue
		}
		instance := levels.Bounded(t.spec.Instance)
		if problem := t.worker().queue.quotas.CheckRuns(sh, instance); problem != "" {
			return fmt.Sprintf("task %s: %s", t.action, problem)
		}
		if l := w.claim(); l != nil {
			there[c].Marked[l]++
		}
		there[c].Used[instance] += c.Cost(w.queue.class)
	}
	queues := s.left()
	for p := range s.dispatch.pools.All() {
		queues = append(queues, p.queues...)
	}
	for _, q := range queues {
		if q.quotas == nil {
			continue
		}
		waiting := map[string]int{}
		for _, t := range q.tasks() {
			if !t.wanted() {
				continue
			}
			waiting[levels.Bounded(t.spec.Instance)]++
			if problem := q.quotas.CheckWaits(t.share); problem != "" {
				return fmt.Sprintf("task %s: %s", t.action, problem)
			}
		}
		there[q.pool.cohort].Waiting[q.quotas] = waiting
		there[q.pool.cohort].Takers[q.quotas] = q.hasTakers()
	}
	for _, c := range s.dispatch.pools.cohorts {
		if problem := c.Check(*there[c]); problem != "" {
			return problem
		}
	}
	return ""
}
