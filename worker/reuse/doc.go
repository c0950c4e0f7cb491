// Package reuse knows when a command need not be run, because a former run of it
// saw nothing of its input root that is different now.
//
// # What is remembered
//
// A Recorder gathers every look that a run takes at its inputs: names that it looked
// up, there or not, directories that it listed, files that it opened, links that
// it followed. With the input tree that makes an exact account of what the run saw: a
// hash of the attributes, the content or the names behind each look. There is no
// filter in it and nothing that could be there by chance. Records keeps the
// accounts of the last four runs of a command, with their results.
//
// # When a run is spared
//
// Commands are the same if command, platform and salt of the Action are, and the worker says that it
// runs them in the same way. Then each
// account is laid over the new input tree: wherever the run looked, the same must be
// seen. Directories with the same digest are not gone into. What was listed
// must have the same names and kinds, what was looked up in vain must not be there,
// what was merely looked up must have the same kind, permissions, time and size
// (of a symlink the length of its target), what was opened the same content. A
// command that sees the same does the same; that it then looked elsewhere would need
// a cause outside of the input root: the time, the network, other files of the
// machine, chance. Those are left out of account, as they are by the action cache.
//
// All blobs of the result must still be in the storage.
//
// # What it refuses
//
// It decides on nothing but what it can prove. A record that is missing, damaged, too
// large or of another tree, a directory that cannot be had, a blob that is gone: each
// means that the command is run, and none is an error for anybody.
//
// # Runs of other workers
//
// Records are a worker's own. Shared are those of all workers of a scheduler, which keeps them (package records/accounts). A
// run of another worker stands for one here only if, beside all that the worker's own need, the machines are alike to commands
// (Machine): no account has the files of the machine that a run looked at. A run is shared only when the machine
// is known not to have changed until after its end.
//
// # Goroutines and locks
//
// Shared has goroutines that tell others of runs, which Close waits for. Recorder.mu and Shared.mu are each alone, and nothing
// blocks under them.
package reuse
