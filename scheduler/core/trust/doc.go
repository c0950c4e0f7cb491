// Package trust says how much work a worker is given after how its last runs ended.
//
// A worker whose disk, network or memory is broken fails all that it is given, within moments, and so is idle more
// often than all others: without this it would take most of a farm's actions. A Record has how the last runs of one
// worker ended, and whether it is suspended for that: it then gets nothing for a while, then one action on trial. If that
// succeeds it is trusted again, else it is suspended for twice as long.
//
// The package does not know what a failure is, nor the other workers: whoever does says whether one is to be suspended.
// It has no clock, goroutine, randomness or I/O and is not safe for concurrent use.
package trust
