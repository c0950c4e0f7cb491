// Package live shows the output of running commands, and the state of the worker, to clients of the
// scheduler. All of it is a hint: none of its failures reaches an action.
//
// Outputs.Run owns the goroutines: one for the call that takes requests, one that reports, and one
// for each stream that is watched.
package live
