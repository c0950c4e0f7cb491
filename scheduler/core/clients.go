package core

import (
	"fmt"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/orphan"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/roster"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"google.golang.org/grpc/codes"
)

// clients handle events of clients, and end operations that no client waits for.
type clients struct {
	*timer.Clock
	cfg        *tuning.Config
	operations *operations
	inFlight   *inFlight
	orphans    *orphan.Results
	dispatch   *dispatcher
	runs       *runs
	calls      *calls
	tally      *view.Tally
	// left are those of the present event.
	left *[]event.Status
}

func (c *clients) submit(e event.Submit) error {
	spec, a := e.Operation, request.KeyOf(e.Digest)
	t := c.inFlight.joinable(spec, a)
	if err := c.admit(spec, t); err != nil {
		return fmt.Errorf("submit operation %s: %w", spec.Name, err)
	}
	switch r := c.orphans.Find(spec, a); {
	case t != nil:
		c.tally.Joined++
		c.join(t, c.operations.add(spec, &operation{}))
	case r != nil:
		c.deliver(r, c.operations.add(spec, &operation{}))
	default:
		t = &task{spec: spec, action: a, queued: c.Now}
		c.start(t, c.operations.add(spec, &t.alone))
	}
	return nil
}

// deliver completes an operation with a result that existed before. If the operation is private, no
// other one gets this result.
func (c *clients) deliver(r *orphan.Result, o *operation) {
	if o.spec.Private {
		c.orphans.Remove(r)
	}
	o.task = &task{attempts: 1}
	o.task.begin(&worker{Member: roster.Member{Key: r.Worker}}, r.Kept())
	c.operations.complete(o, r.Response)
}

// admit returns why an operation is not accepted; t is the task that it would share.
func (c *clients) admit(spec *request.Operation, t *task) error {
	if c.operations.byName[spec.Name] != nil {
		return event.ErrDuplicate
	}
	if n := c.operations.clients[spec.Client]; n >= c.cfg.MaxPerClient {
		return fmt.Errorf("%w: %d of %s are not done", event.ErrClientFull, n, spec.Client)
	}
	if t != nil {
		return nil
	}
	if c.dispatch.queued >= c.cfg.MaxQueued {
		return fmt.Errorf("%w: %d actions wait", event.ErrQueueFull, c.dispatch.queued)
	}
	waiting := c.dispatch.unmatched.Len()
	if q := c.dispatch.pools.match(spec, spec.Size.Class, true, nil); q != nil {
		waiting = q.waiting
	}
	if waiting >= c.cfg.MaxPerQueue {
		return fmt.Errorf("%w: %d actions wait for a worker with %s", event.ErrQueueFull, waiting, spec.Platform)
	}
	return nil
}

// join adds an operation to a task.
func (c *clients) join(t *task, o *operation) {
	unasked := t.spec == nil
	if unasked {
		t.spec, t.queued = o.spec, o.queued
		c.Timers.Stop(&t.timer)
	}
	parked := !t.wanted()
	t.add(o)
	if unasked {
		t.charge()
	}
	t.share.Urge(o.spec.Priority)
	t.attach(o)
	c.operations.changed(o)
	if parked && t.queue() != nil {
		c.dispatch.rematch(t)
	}
}

// start queues a new task for an operation.
func (c *clients) start(t *task, o *operation) {
	t.timer.Owner, t.item.Owner = t, t
	t.add(o)
	t.private = o.spec.Private
	c.inFlight.add(t)
	c.operations.changed(o)
	c.dispatch.enqueue(t)
}

func (c *clients) attach(e event.Attach) error {
	o, ok := c.operations.byName[e.Name]
	if !ok {
		return event.ErrUnknown
	}
	o.waiters++
	if !o.done() {
		c.Timers.Stop(&o.timer)
		c.want(o)
	}
	return nil
}

// want records that a client waits for an operation, which takes turns again.
func (c *clients) want(o *operation) {
	t := o.task
	if o.wanted {
		return
	}
	o.wanted = true
	if t.pool != nil {
		t.pool.tree.Unpark(&o.entry)
	}
	if t.wanting++; t.wanting == 1 && t.queue() != nil {
		c.dispatch.rematch(t)
	}
}

// unwant records that no client waits for an operation any more. If no operation of a task is
// wanted, the task is parked if it is queued; if it runs, it is the first to be stopped when others
// wait.
func (c *clients) unwant(o *operation) {
	t := o.task
	o.wanted = false
	if t.pool != nil {
		t.pool.tree.Park(&o.entry)
	}
	if t.wanting--; t.wanting > 0 {
		return
	}
	if t.queue() != nil {
		c.dispatch.rematch(t)
	} else if w := t.worker(); w != nil {
		c.calls.unwanted(w)
	}
}

func (c *clients) detach(e event.Detach) {
	o, ok := c.operations.byName[e.Name]
	if !ok || o.waiters == 0 {
		return
	}
	if o.waiters--; o.waiters > 0 || o.done() {
		return
	}
	if e.Now {
		c.abandon(o)
		return
	}
	c.Timers.Set(&o.timer, c.Now.Add(c.cfg.ClientGrace))
	c.unwant(o)
}

func (c *clients) cancel(e event.Cancel) error {
	o, ok := c.operations.byName[e.Name]
	if !ok {
		return event.ErrUnknown
	}
	if !o.done() {
		c.abort(o, failure(codes.Canceled, "the operation was cancelled"), event.Cancelled)
	}
	return nil
}

// abort ends an operation, and its task if that runs for it alone.
func (c *clients) abort(o *operation, resp *repb.ExecuteResponse, why event.Why) {
	t := o.task
	c.operations.complete(o, resp)
	c.leave(t, o, why)
}

// abandon drops an operation because no client came back for it.
func (c *clients) abandon(o *operation) {
	*c.left = append(*c.left, c.operations.lastOf(o, failure(codes.Canceled, "no client waited for it any more")))
	c.operations.drop(o)
	c.leave(o.task, o, event.Abandoned)
	o.task = nil
	c.operations.changed(o)
}

// leave takes an operation from its task; a task with none left is stopped.
func (c *clients) leave(t *task, o *operation, why event.Why) {
	t.detach(o)
	wanted := o.wanted
	t.remove(o)
	switch {
	case t.operations.empty():
		c.runs.stop(t, why)
	case wanted && t.wanting == 0 && t.queue() != nil:
		c.dispatch.rematch(t)
	case wanted && t.wanting == 0 && t.worker() != nil:
		c.calls.unwanted(t.worker())
	}
}
