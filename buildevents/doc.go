// Package buildevents takes what build tools publish of their builds (Bazel's --bes_backend),
// answers each event as the protocol prescribes, and keeps of it what people ask for: command,
// result, targets, tests and failures.
//
// To publish never fails a build. What cannot be kept, for want of memory or because a part was
// lost, is missing in the record, which says so; the events are answered nevertheless. Only what no
// build tool sends is an error: a stream without a name, or with a gap in its numbers. A stream
// that was cut is resumed by another, also after a restart: the state of a build is what package
// history has of it, and events that were taken before are answered again and not counted twice.
//
// The package refuses to show anything, and to believe what clients say of themselves: a build
// belongs to the user who publishes it, for an instance name for which that user may execute.
//
// Sizes are bounded: of each event that is looked into, of each text and list, and of the whole of
// a build. A stream counts for its caller (package intake) with what its build takes in memory, and
// his builds have a share of the records that are kept (history.Store.AddBuild).
//
// Goroutines are those of calls, and of timers that end with them. Lock order: Service.mu, live.mu.
package buildevents
