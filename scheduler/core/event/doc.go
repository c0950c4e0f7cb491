// Package event has what core.State is told, and what it answers: an Event goes into core.State.Step with its time, and an
// Out comes back that says what the caller must do.
//
// Everything in it is a value. What becomes of an event is in package core alone, and so are those that operators cause.
package event
