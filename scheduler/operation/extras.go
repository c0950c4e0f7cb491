package operation

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// Extras are what a Server knows of an operation that it submits, and the core does not. They are its
// request.Operation.Owner; nobody changes them once it is submitted.
type Extras struct {
	// Learn returns what the end of a run teaches, nil if nothing or not yet. Nil: nothing is learned.
	Learn func(time.Time, event.Ended) *sizeclass.Lesson
	// Span is the operation's own, nil: it is not traced.
	Span trace.Span
	// Note is what the client is told with the result, Tool the path of the program that the action starts,
	// as far as it is known.
	Note, Tool string
}

// ExtrasOf returns those of an operation, which may have none.
func ExtrasOf(op *request.Operation) Extras {
	if x, ok := op.Owner.(*Extras); ok {
		return *x
	}
	return Extras{}
}

// AddExtras returns those of an operation that is not yet submitted, to fill them in.
func AddExtras(op *request.Operation) *Extras {
	x, ok := op.Owner.(*Extras)
	if !ok {
		x = &Extras{}
		op.Owner = x
	}
	return x
}
