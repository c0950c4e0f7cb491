package scheduler

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/forerunner-build/forerunner/scheduler/core"
)

// extras are what a Server knows of an operation that it submits, and the core does not. They are its
// core.Operation.Owner; nobody changes them once it is submitted.
type extras struct {
	// lessons learns from the operation's runs, span is its own.
	lessons *lessons
	span    trace.Span
	// note is what the client is told with the result, tool the path of the program that the action starts,
	// as far as it is known.
	note, tool string
}

// extrasOf returns those of an operation, which may have none.
func extrasOf(op *core.Operation) extras {
	if x, ok := op.Owner.(*extras); ok {
		return *x
	}
	return extras{}
}

// addExtras returns those of an operation that is not yet submitted, to fill them in.
func addExtras(op *core.Operation) *extras {
	x, ok := op.Owner.(*extras)
	if !ok {
		x = &extras{}
		op.Owner = x
	}
	return x
}
