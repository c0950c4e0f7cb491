// Package outputs collects a command's outputs from its input root: it makes the folders that the
// command expects ([Spec.Prepare]), finds the outputs when it has ended, hashes them, moves or
// copies them into the worker's store, and uploads blobs that storage lacks ([Outputs]).
//
// For this package, the root is a folder in which some files are unchanged inputs ([Root]). It
// knows nothing of actions: others start the command, repeat it and report results.
//
// It has no goroutines. One goroutine uses an Outputs.
package outputs
