// Package event has the inputs and outputs of core.State: an Event goes into core.State.Step with
// its time, and an Out comes back that says what the caller must do.
//
// Everything in it is a value. Only package core knows the transitions, and has the events of
// operators.
package event
