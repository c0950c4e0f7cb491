package core

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/roster"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// operators do what follows from what operators order.
type operators struct {
	*timer.Clock
	operations *operations
	workers    *roster.Roster[*worker]
	drains     *drain.List
	dispatch   *dispatcher
	clients    *clients
	// killed counts the operations that the present event ended.
	killed *int
}

// order does what operators order.
func (op *operators) order(e event.Event) error {
	switch e := e.(type) {
	case event.Kill:
		op.kill(e)
	case event.Drain:
		return op.drain(e)
	case event.Undrain:
		return op.undrain(e)
	case event.PutQuota:
		return op.putQuota(e)
	case event.DeleteQuota:
		return op.deleteQuota(e)
	default:
		panic(fmt.Sprintf("scheduler core: event of an unknown type: %T", e))
	}
	return nil
}

func (op *operators) kill(e event.Kill) {
	for _, name := range e.Names {
		if o := op.operations.byName[name]; o != nil && !o.done() {
			op.clients.abort(o, failure(codes.FailedPrecondition, "an operator has killed the operation: "+e.Reason))
			*op.killed++
		}
	}
}

func (op *operators) drain(e event.Drain) error {
	if e.Since.IsZero() {
		e.Since = op.Now
	}
	changed, err := op.drains.Put(e.Record)
	if changed {
		op.redrain()
	}
	return err
}

func (op *operators) undrain(e event.Undrain) error {
	if !op.drains.Delete(e.Pattern) {
		return event.ErrUnknown
	}
	op.redrain()
	return nil
}

// redrain applies the patterns in force to all workers, in the order of their names.
func (op *operators) redrain() {
	for _, w := range op.workers.Sorted() {
		may := !op.drains.Matches(w.Attribute)
		if may == (w.takes != Drained) {
			continue
		}
		if !may {
			// A call that is held stays so: the worker would come back at once.
			w.unidle()
		}
		op.dispatch.serve(w, may)
		if may && w.held {
			op.dispatch.offer(w)
		}
	}
}

func (op *operators) putQuota(e event.PutQuota) error {
	k := e.Key
	c := op.dispatch.pools.cohort(k.Cohort)
	if err := op.dispatch.pools.admitQuota(c, k, e.Quota); err != nil {
		return fmt.Errorf("put quota of %q in cohort %q: %w", k.Instance, k.Cohort, err)
	}
	op.setQuota(c, k.Instance, e.Quota)
	if e.Preempt {
		c.StopOverMax(k.Instance)
	}
	return nil
}

func (op *operators) deleteQuota(e event.DeleteQuota) error {
	c := op.dispatch.pools.cohort(e.Cohort)
	if c == nil {
		return event.ErrUnknown
	}
	if _, known := c.Quota(e.Instance); !known {
		return event.ErrUnknown
	}
	op.setQuota(c, e.Instance, quota.Quota{})
	return nil
}

// setQuota puts a quota in force; the zero Quota is none.
func (op *operators) setQuota(c *cohort, instance string, q quota.Quota) {
	c.Set(instance, q)
	op.dispatch.rematchInstance(c, instance)
}
