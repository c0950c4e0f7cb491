// Package accounts keeps exact records of the inputs that runs of commands read, with their
// results, and serves them to workers, so that no worker repeats a run of another.
//
// It defines the encoding of a command's runs (Encode, Decode), their digest (Key), and how many
// are kept (Merge). Package worker/reuse interprets them, and decides whether a run can be reused:
// the service compares nothing with input trees.
//
// # Authorization
//
// A wrong record causes a wrong result, so callers that may write records are those that may write
// results. With authentication, package auth lets only workers call. Without it, a call presents
// the grant of its action, and a run is kept only under the command of that action: the service
// reads the Action itself.
//
// # Limits
//
// A record has at most MaxRuns runs and MaxBytes bytes; the store limits all records together. At
// most maxKeeping runs are added at a time, others are refused, because they are hints.
//
// # Goroutines and locks
//
// It has no goroutines. service.locks serialize additions to one record, while the store is read
// and written; no other lock is held then.
package accounts
