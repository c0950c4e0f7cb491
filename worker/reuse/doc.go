// Package reuse skips a command if an earlier run of it read no input that has changed since.
//
// Package records/lookback records what a run saw and compares it. This package has the worker's
// part: it keeps the records of the last four runs of a command with their results (Records), finds
// out for one action whether one can be reused (Attempt), and shares runs with other workers
// (Shared).
//
// Commands are equal if command, platform and salt of the Action are, and if the worker would run
// them in the same way. A command that sees the same does the same; a different behaviour would
// need a cause outside of the input root: the time, the network, other files of the machine,
// chance. These are ignored, as they are by the action cache.
//
// # What it refuses
//
// It reuses only what it can prove. A record that is missing, damaged or too large means that the
// command runs, and none is an error.
//
// # Runs of other workers
//
// Records belong to one worker. Shared has those of all workers of a scheduler, which keeps them
// (package records/sharedruns). A run of another worker is reused only if, in addition to all other
// conditions, the machines are alike to commands (Machine): a record does not have the files of the
// machine that a run read. A run is shared only when the machine is known to be unchanged until
// after its end. With Circumstances, the scheduler itself can find runs for the worker.
//
// # Goroutines and locks
//
// Shared has goroutines that send runs, which Close waits for. Shared.mu is its only lock, and
// nothing blocks under it.
package reuse
