// Package accounts keeps exact accounts of what runs of commands looked at, with their results, and serves them to
// workers, so that each spares a run that any other has made.
//
// It says how the runs of a command are encoded (Encode, Decode), under which digest (Key), and how many are kept
// (Merge). What an account means, and whether a run stands for another one, is for package worker/reuse to know: the
// service compares nothing with input trees.
//
// # Who may call
//
// A wrong account makes a wrong result, so who may write accounts is who may write results. Where callers are known by
// name, package auth lets workers call and nobody else. Where they are not, a call shows the grant of its action, and a
// run is kept under the command of that action alone: the service reads the Action itself.
//
// # Bounds
//
// A record has at most MaxRuns runs and MaxBytes bytes; the store bounds all records together. At most maxKeeping runs
// are being added at a time, others are refused: they are hints.
//
// # Goroutines and locks
//
// It has no goroutines. service.locks serialize those who add runs to one record, while the store is read and written; nothing
// else is held then.
package accounts
