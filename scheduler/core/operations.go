package core

import (
	"iter"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/listing"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// An operation is one client's view of a task.
type operation struct {
	spec *request.Operation
	task *task
	// before and after are operations of the same task; see sharers.
	before, after *operation
	rev           uint32
	waiters       int32
	dirty         bool
	// restored: it was there before this State; see Restore.
	restored bool
	// wanted: a client waits for it, or may still come back for it after a restart.
	wanted bool
	queued time.Time
	// age is its number, entry its place in the tree that its task is in.
	age   uint64
	entry fair.Entry
	// timer runs while no client waits, unless the operation is done.
	timer timer.Timer
	// last is the final state; it is set when task no longer is.
	last *event.Status
}

func (o *operation) done() bool { return o.last != nil }

// gone: no client came back for it before it was done, or it was forgotten.
func (o *operation) gone() bool { return o.last == nil && o.task == nil }

func (o *operation) status() (st event.Status) {
	o.describe(&st)
	return st
}

// describe fills in an empty status: field by field, because a copy of the whole is slow while the
// garbage collector marks.
func (o *operation) describe(st *event.Status) {
	if o.done() {
		*st = *o.last
		return
	}
	st.Operation, st.Rev, st.Queued = o.spec, uint64(o.rev), o.queued
	if o.gone() {
		return
	}
	st.Stage, st.Started, st.Attempts = repb.ExecutionStage_QUEUED, o.task.started, int(o.task.attempts)
	if w := o.task.worker(); w != nil {
		st.Stage, st.Worker, st.Away = repb.ExecutionStage_EXECUTING, w.Key, w.duty == away
		if w.queue != nil {
			st.Queue = w.queue.name
		}
	}
}

// operations are clients' requests for actions, by name, until they are forgotten some time after
// their end.
type operations struct {
	*timer.Clock
	cfg    *tuning.Config
	byName map[string]*operation
	// clients counts the operations of each client that are not done.
	clients map[string]int
	// open are those that are not done, by age, with the tags of their invocations.
	open listing.Tagged[*operation]
	// completed are those that are done, the oldest first. All are kept equally long, so that one
	// timer is enough for them: expiry is when the first of them must be forgotten, or sooner.
	completed fifo.Ring[kept]
	expiry    timer.Timer
	// dirty are those that the current event has changed, each once.
	dirty []*operation
}

// kept names an operation that is done.
type kept struct {
	name  string
	until time.Time
}

func newOperations(c *timer.Clock, cfg *tuning.Config) *operations {
	ops := &operations{
		Clock: c, cfg: cfg, byName: map[string]*operation{}, clients: map[string]int{},
	}
	ops.expiry.Owner = ops
	return ops
}

// add makes o the operation that spec asks for.
func (ops *operations) add(spec *request.Operation, o *operation) *operation {
	o.spec, o.queued, o.waiters, o.wanted = spec, ops.Now, 1, true
	o.age = ops.open.Add(o, listing.TagOf(spec.Request.ToolInvocation))
	o.timer.Owner = o
	ops.byName[spec.Name] = o
	if spec.Client != "" {
		ops.clients[spec.Client]++
	}
	return o
}

// restore adds an operation from before this State, for which no client waits yet.
func (ops *operations) restore(h event.Held, o *operation) *operation {
	ops.add(h.Operation, o)
	o.queued, o.waiters, o.restored = h.Queued, 0, true
	ops.Timers.Set(&o.timer, ops.Now.Add(ops.cfg.ClientGrace))
	return o
}

// lastOf returns the end, now, of an operation that its clients do not learn of: to them it is
// forgotten.
func (ops *operations) lastOf(o *operation, resp *repb.ExecuteResponse) event.Status {
	last := o.status()
	last.Stage, last.Ended, last.Response = repb.ExecutionStage_COMPLETED, ops.Now, resp
	return last
}

// drop forgets an operation that is not done. Its task is the caller's business.
func (ops *operations) drop(o *operation) {
	delete(ops.byName, o.spec.Name)
	ops.discount(o)
}

// discount removes a completed operation from the open ones and from those of its client.
func (ops *operations) discount(o *operation) {
	ops.open.Remove(o.age)
	client := o.spec.Client
	if client == "" {
		return
	}
	if ops.clients[client]--; ops.clients[client] == 0 {
		delete(ops.clients, client)
	}
}

// changed schedules an update of the operation's waiters for the end of the event.
func (ops *operations) changed(o *operation) {
	o.rev++
	if !o.dirty {
		o.dirty = true
		ops.dirty = append(ops.dirty, o)
	}
}

// changedAll is changed for all operations of a task.
func (ops *operations) changedAll(t *task) {
	for o := range t.operations.all() {
		ops.changed(o)
	}
}

// notices returns the operations that the present event has changed, and ends it.
func (ops *operations) notices() (notices []event.Status) {
	if n := len(ops.dirty); n > 0 {
		notices = make([]event.Status, n)
	}
	for i, o := range ops.dirty {
		o.dirty = false
		o.describe(&notices[i]) // including forgotten operations: their followers must learn of it
	}
	ops.dirty = ops.dirty[:0]
	return notices
}

// complete sets an operation's last state and keeps it for clients that ask for it again. The
// caller handles its task.
func (ops *operations) complete(o *operation, resp *repb.ExecuteResponse) {
	st := &event.Status{}
	o.describe(st)
	ops.changed(o)
	st.Stage, st.Rev, st.Ended, st.Response = repb.ExecutionStage_COMPLETED, uint64(o.rev), ops.Now, resp
	o.last, o.task = st, nil
	ops.discount(o)
	ops.Timers.Stop(&o.timer)
	k := kept{o.spec.Name, ops.Now.Add(ops.cfg.KeepCompleted)}
	if ops.completed.Len() == 0 {
		ops.Timers.Set(&ops.expiry, k.until)
	}
	ops.completed.PushBack(k)
	if ops.completed.Len() > ops.cfg.MaxCompleted {
		ops.forgetOldest()
	}
}

func (ops *operations) forgetOldest() { delete(ops.byName, ops.completed.PopFront().name) }

// keepLonger extends the time of all kept operations, but not beyond that of operations that will
// be done from now on.
func (ops *operations) keepLonger(d time.Duration) {
	limit := ops.Now.Add(ops.cfg.KeepCompleted)
	for i := range ops.completed.Len() {
		k := ops.completed.At(i)
		if k.until = k.until.Add(d); k.until.After(limit) {
			k.until = limit
		}
	}
	if ops.completed.Len() > 0 {
		ops.Timers.Set(&ops.expiry, ops.completed.At(0).until)
	}
}

// expire forgets operations that were kept long enough.
func (ops *operations) expire() {
	for ops.completed.Len() > 0 && !ops.completed.At(0).until.After(ops.Now) {
		ops.forgetOldest()
	}
	if ops.completed.Len() > 0 {
		ops.Timers.Set(&ops.expiry, ops.completed.At(0).until)
	}
}

// sharers are the operations of one task, in the order in which they came; the zero value has none.
// Each links to the next and the previous one; the first links to the last as its previous one. So
// the list takes one word of the task, and an operation that leaves is found at once: all may leave
// in one event, when a client with many operations dies.
type sharers struct{ first *operation }

func (l *sharers) empty() bool { return l.first == nil }

func (l *sharers) add(o *operation) {
	if l.first == nil {
		l.first, o.before = o, o
		return
	}
	last := l.first.before
	last.after, o.before, l.first.before = o, last, o
}

func (l *sharers) remove(o *operation) {
	if o.after != nil {
		o.after.before = o.before
	} else {
		l.first.before = o.before
	}
	if l.first == o {
		l.first = o.after
	} else {
		o.before.after = o.after
	}
	o.before, o.after = nil, nil
}

// all yields the operations in order. The one that is yielded may be removed during the iteration.
func (l *sharers) all() iter.Seq[*operation] {
	return func(yield func(*operation) bool) {
		for o := l.first; o != nil; {
			after := o.after
			if !yield(o) {
				return
			}
			o = after
		}
	}
}
