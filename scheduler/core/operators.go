package core

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// operators handle events of operators.
type operators struct {
	*timer.Clock
	operations *operations
	drains     *drain.List
	reviews    *reviews
	dispatch   *dispatcher
	clients    *clients
	// killed counts the operations that the present event ended.
	killed *int
}

// An order is an event that operators cause, with its transition.
type order interface {
	event.Event
	do(op *operators) error
}

// Orders returns one of each kind of operator event, and of other equally simple events. A Journal
// records them as JSON.
func Orders() []event.Event {
	return []event.Event{Kill{}, Drain{}, Undrain{}, PutQuota{}, DeleteQuota{}, event.Settle{}}
}

// order executes an event of an operator.
func (op *operators) order(e event.Event) error {
	o, ok := e.(order)
	if !ok {
		panic(fmt.Sprintf("scheduler core: event of an unknown type: %T", e))
	}
	return o.do(op)
}

// Kill ends operations for all their clients, on behalf of an operator; see event.Out.Killed.
// Clients get FAILED_PRECONDITION, because Bazel retries CANCELLED, ABORTED and PERMISSION_DENIED
// (which it takes for old credentials).
type Kill struct {
	event.Order
	Names  []string
	Reason string
}

func (k Kill) do(op *operators) error {
	for _, name := range k.Names {
		if o := op.operations.byName[name]; o != nil && !o.done() {
			op.clients.abort(o, failure(codes.FailedPrecondition, "an operator has killed the operation: "+k.Reason), event.Killed)
			*op.killed++
		}
	}
	return nil
}

// Drain stops giving actions to present and later workers that a pattern matches, until Undrain;
// they finish the actions that they have. It is refused with drain.ErrTooMany.
type Drain struct {
	event.Order
	drain.Record
}

func (d Drain) do(op *operators) error {
	if d.Since.IsZero() {
		d.Since = op.Now
	}
	changed, err := op.drains.Put(d.Record)
	if changed {
		op.reviews.start()
	}
	return err
}

// Undrain undoes Drain with an equal pattern, or is refused with event.ErrUnknown if no such drain
// is active. A worker that another pattern matches stays drained.
type Undrain struct {
	event.Order
	Pattern pattern.Pattern
}

func (u Undrain) do(op *operators) error {
	if !op.drains.Delete(u.Pattern) {
		return event.ErrUnknown
	}
	op.reviews.start()
	return nil
}

// PutQuota gives an instance a quota of a cohort. Running actions above its maximum continue or,
// with Preempt, are stopped as soon as the workers call, and queued again. It is refused with
// quota.ErrNoCohort, quota.ErrBad or quota.ErrTooMany.
type PutQuota struct {
	event.Order
	quota.Record
	Preempt bool
}

func (p PutQuota) do(op *operators) error {
	k := p.Key
	c := op.dispatch.pools.cohort(k.Cohort)
	if err := op.dispatch.pools.admitQuota(c, k, p.Quota); err != nil {
		return fmt.Errorf("put quota of %q in cohort %q: %w", k.Instance, k.Cohort, err)
	}
	op.setQuota(c, k.Instance, p.Quota)
	if p.Preempt {
		c.StopOverMax(k.Instance)
	}
	return nil
}

// DeleteQuota removes a quota, or is refused with event.ErrUnknown if there is none.
type DeleteQuota struct {
	event.Order
	quota.Key
}

func (d DeleteQuota) do(op *operators) error {
	c := op.dispatch.pools.cohort(d.Cohort)
	if c == nil {
		return event.ErrUnknown
	}
	if _, known := c.Quota(d.Instance); !known {
		return event.ErrUnknown
	}
	op.setQuota(c, d.Instance, quota.Quota{})
	return nil
}

// setQuota puts a quota in force; the zero Quota is none.
func (op *operators) setQuota(c *cohort, instance string, q quota.Quota) {
	c.Set(instance, q)
	op.dispatch.rematchInstance(c, instance)
}
