package operation

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// Extras are the Server's data of a submitted operation that the core does not need. They are its
// request.Operation.Owner; nobody changes them after submission.
type Extras struct {
	// Learn returns the lesson of a run's end, or nil if there is none yet. A nil Learn learns
	// nothing.
	Learn func(time.Time, event.Ended) *sizeclass.Lesson
	// Span is the operation's span; nil: it is not traced.
	Span trace.Span
	// Note is for the client, with the result; Tool is the path of the action's program, if known.
	Note, Tool string
	// Sent keeps the Command that a worker got; nil: none is kept.
	Sent *Sent
	// Reused is the action whose result the scheduler gave this one; empty: none.
	Reused string
}

// ExtrasOf returns the Extras of an operation, which may have none.
func ExtrasOf(op *request.Operation) Extras {
	if x, ok := op.Owner.(*Extras); ok {
		return *x
	}
	return Extras{}
}

// AddExtras returns the Extras of an operation that is not submitted yet, to fill them in.
func AddExtras(op *request.Operation) *Extras {
	x, ok := op.Owner.(*Extras)
	if !ok {
		x = &Extras{}
		op.Owner = x
	}
	return x
}
