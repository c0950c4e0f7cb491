// Package sharedruns stores exact records of the inputs that runs of commands read, together with
// their results. It serves them to workers, so that no worker repeats a run of another worker.
//
// It defines the encoding of a command's runs (Encode, Decode), their key (Key), and which runs are
// kept (Merge). Package worker/reuse interprets the runs and decides whether one can be reused. The
// service compares nothing with input trees.
//
// # Authorization
//
// A wrong record causes a wrong result, so only callers that may write results may write records.
// With authentication, package auth admits only workers. Without authentication, a call presents
// the grant of its action. The service reads the Action itself, and stores a run only under the
// command of that action.
//
// # Limits
//
// A record has at most MaxRuns runs and MaxBytes bytes; the store limits the size of all records
// together. At most maxKeeping runs are added concurrently. The service refuses further ones,
// because runs are hints.
//
// # Goroutines and locks
//
// It has no goroutines. service.locks serialize additions to one record, while the service reads
// and writes the store; it holds no other lock then.
package sharedruns
