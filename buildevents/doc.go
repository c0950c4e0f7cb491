// Package buildevents takes the events that build tools publish of their builds (Bazel's
// --bes_backend), acknowledges each as the protocol prescribes, and keeps what people ask for:
// command, result, targets, tests and failures.
//
// Publishing never fails a build. If something cannot be kept, because memory is full or events
// were lost, the record lacks it and says so; the events are acknowledged nevertheless. Only a
// stream that no build tool sends is an error: one without a name, or with a gap in its numbers.
// Another stream continues one that was cut, also after a restart: package history has the state of
// a build, and events that were taken before are acknowledged again and not counted twice.
//
// The package shows nothing. It does not believe what clients say of themselves: a build belongs to
// the user who publishes it, for an instance name for which that user may execute.
//
// Everything is limited: the size of each event that is parsed, of each text and list, and of a
// whole build. A stream counts for its caller (package intake) with the memory of its build, and
// the builds of a caller have a share of the stored records (history.Store.AddBuild).
//
// Goroutines are those of calls, and of timers that end with them. Lock order: Service.mu, live.mu.
package buildevents
