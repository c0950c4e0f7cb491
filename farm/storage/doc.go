// Package storage opens the storage of a scheduler as its flags require: embedded storage in a
// folder, served on the scheduler's port, or an external server. The rest of the scheduler sees no
// difference.
//
// It has no goroutines: an Opened belongs to its caller, who closes it.
package storage
