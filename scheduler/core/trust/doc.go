// Package trust decides how much work a worker gets by the outcome of its last runs.
//
// A worker whose disk, network or memory is broken fails all its actions within moments, and so is
// idle more often than all others: without this it would get most of a farm's actions. A Record has
// the outcomes of the last runs of one worker, and whether it is suspended: it then gets no action
// for a while, then one action on trial. If that succeeds it is trusted again; if not, it is
// suspended for twice as long.
//
// The package does not know what a failure is, nor the other workers: the caller decides whether a
// worker must be suspended. It has no clock, goroutine, randomness or I/O and is not safe for
// concurrent use.
package trust
