package preemption

import (
	"maps"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// A Queue is a cohort's state of the queue of one size class of a pool.
//
// A nil Queue belongs to no cohort: its tasks do not count.
type Queue struct {
	// Owner is the caller's.
	Owner any

	cohort *Cohort
	class  uint32
	// lines are by instance; hidden are those that are not exposed, see tier. calls are the next
	// times by which all busy workers call, and overdue are marks for lines whose tasks should have
	// yielded by now.
	lines   map[string]*Line
	hidden  fifo.List[*Line]
	calls   []time.Time
	overdue fifo.List[*Mark]
}

// Queue returns a cohort's state of the queue of a size class, whose tree must get its grades from
// Grade and Changes. For a nil Cohort it is nil.
func (c *Cohort) Queue(class uint32, owner any) *Queue {
	if c == nil {
		return nil
	}
	return &Queue{Owner: owner, cohort: c, class: class}
}

// A Line has the waiting tasks of one instance in one queue of a cohort. It exists while a task
// waits there, or must yield to it.
type Line struct {
	queue *Queue
	tier  *tier
	// tasks is in the order of arrival.
	tasks fifo.List[*Share]
	// marked counts the tasks that must yield.
	marked int
	// timer runs until more tasks must yield, or a shorter time, if its instance is below its
	// minimum. If it does not run although tasks are left for which none yields, the line rests.
	timer timer.Timer
	rests fifo.Anchor
	// anchor is in tier.exposed or in queue.hidden; nil: the line is gone. seen is the round in
	// which Stirred looked at it last.
	exposed bool
	anchor  fifo.Anchor
	seen    uint64
}

// Instance is the key of a line.
func (l *Line) Instance() string { return l.tier.party.instance }

// Queue is where it is.
func (l *Line) Queue() *Queue { return l.queue }

// Admits reports whether an instance can ever run something on the queue's workers: one action must
// not cost more than its maximum.
func (q *Queue) Admits(instance string) bool {
	if q == nil {
		return true
	}
	most := q.cohort.quotas[instance].Max
	return most == 0 || q.cohort.Cost(q.class) <= most
}

// Grade returns whether an instance may start a task on the queue's workers.
func (q *Queue) Grade(instance string) fair.Grade {
	if q == nil {
		return fair.Share
	}
	return q.cohort.Grade(q.class, instance)
}

// Enter adds a task that waits in the queue to its instance's line.
func (q *Queue) Enter(sh *Share) {
	c, l := q.cohort, q.lines[sh.instance]
	if l == nil {
		l = &Line{queue: q, tier: c.tierOf(sh.instance, c.Cost(q.class))}
		l.timer.Owner = l
		l.tier.lines++
		l.hide()
		if q.lines == nil {
			q.lines = map[string]*Line{}
		}
		q.lines[sh.instance] = l
	}
	if sh.since.IsZero() {
		sh.since = c.Now
	}
	sh.line, sh.element = l, l.tasks.PushBack(sh)
	l.tier.party.waiting++
	c.arm(l)
}

// Leave undoes Enter, if the task is in a line, because it is about to leave its queue. Nothing
// happens to a nil Share.
func (sh *Share) Leave() {
	if sh == nil || sh.line == nil {
		return
	}
	l := sh.line
	l.tasks.Remove(sh.element)
	l.tier.party.waiting--
	sh.line, sh.element = nil, nil
	l.queue.cohort.arm(l)
}

// Waits reports whether a task of an instance waits in the queue.
func (q *Queue) Waits(instance string) bool {
	l := q.lines[instance]
	return l != nil && l.tasks.Len() > 0
}

// A LineView is an instance's state in a queue, for people.
type LineView struct {
	Instance        string
	Waiting, Marked int
	// Below is since when the instance is below its minimum, zero if it is not. Due is when more
	// tasks must yield, zero if none must.
	Below, Due time.Time
}

// Lines returns the lines of the queue, by instance.
func (q *Queue) Lines() (views []LineView) {
	if q == nil {
		return nil
	}
	for _, instance := range slices.Sorted(maps.Keys(q.lines)) {
		l := q.lines[instance]
		v := LineView{Instance: instance, Waiting: l.tasks.Len(), Marked: l.marked}
		if l.Short() {
			v.Below = l.tier.below
		}
		if first, _ := l.tasks.Front(); l.Short() && l.timer.IsSet() {
			v.Due = latest(q.cohort.Timers.When(&l.timer), q.cohort.ripe(l, first))
		}
		views = append(views, v)
	}
	return views
}

// Short reports whether a line's instance is below its minimum and waits in it.
func (l *Line) Short() bool {
	return l.tasks.Len() > 0 && !l.tier.below.IsZero()
}

// Startable returns how many tasks of a line quotas let start now, besides those for which workers
// were woken.
func (l *Line) Startable() int {
	return int(min(int64(l.tasks.Len()), l.queue.cohort.headroom(l.tier)))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// NextCall returns when a busy worker of the queue must call again: at a given time, or early
// enough to learn that its task or another one must yield.
func (q *Queue) NextCall(at time.Time, sh *Share) time.Time {
	if q == nil {
		return at
	}
	now := q.cohort.Now
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(at) {
			at = t
		}
	}
	sooner(now.Add(q.cohort.options.Grace))
	for _, call := range q.calls {
		sooner(call)
	}
	if sh.Counts() && sh.mark != nil {
		sooner(sh.mark.deadline)
	}
	return at
}
