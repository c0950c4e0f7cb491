// Package reuse skips a command if an earlier run of it read no input that has changed since.
//
// # What is remembered
//
// A Recorder collects every lookup of a run in its inputs: existing and missing names, listed
// directories, opened files, followed links. With the input tree that makes an exact record of what
// the run saw: a hash of the attributes, the content or the names behind each lookup. It contains
// no filter and nothing that could match by chance. Records keeps the records of the last four runs
// of a command, with their results.
//
// # When a run is skipped
//
// Commands are equal if command, platform and salt of the Action are, and if the worker would run
// them in the same way. Then each record is compared with the new input tree: the run's lookups
// must show the same. Directories with the same digest are skipped. A listed directory must have
// the same names and kinds, a missing name must still be missing, a name that was only looked up
// must have the same kind, permissions, time and size (for a symlink the length of its target), an
// opened file the same content. A command that sees the same does the same; a different behaviour
// would need a cause outside of the input root: the time, the network, other files of the machine,
// chance. These are ignored, as they are by the action cache.
//
// All blobs of the result must still be in the storage.
//
// # What it refuses
//
// It reuses only what it can prove. A record that is missing, damaged, too large or of another
// tree, a directory that cannot be read, a missing blob: each means that the command runs, and none
// is an error.
//
// # Runs of other workers
//
// Records belong to one worker. Shared has those of all workers of a scheduler, which keeps them
// (package records/accounts). A run of another worker is reused only if, in addition to all other
// conditions, the machines are alike to commands (Machine): a record does not have the files of the
// machine that a run read. A run is shared only when the machine is known to be unchanged until
// after its end.
//
// # Goroutines and locks
//
// Shared has goroutines that send runs, which Close waits for. Recorder.mu and Shared.mu are each
// alone, and nothing blocks under them.
package reuse
