// Package pastruns lets the scheduler answer an action with the result of an earlier run of the same
// command, without a worker, if that run read no input that has changed since.
//
// # What is reused
//
// Workers share runs (package records/sharedruns), and name with each call the circumstances under
// which they run commands: how, and on which machine. A Finder searches only runs with the
// circumstances of a worker that may get the action, and compares their reads with the action's
// input tree as that worker would (package records/lookback). So it reuses nothing that the worker
// would not.
//
// # What it refuses
//
// A Finder is a hint. Whatever fails, the action goes to a worker. A search takes a second at most.
// If the storage hangs, there is no search for up to half a minute. At most maxSearches run
// concurrently, and each reads at most maxBytes of directories.
//
// # Goroutines and locks
//
// A search has goroutines that read directories, and waits for them.
package pastruns
