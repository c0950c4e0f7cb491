// Package storage opens the storage of a scheduler, as its flags say: in a folder of its own, served
// on the scheduler's port, or a server elsewhere. The rest of the scheduler sees no difference.
//
// It has no goroutines: an Opened belongs to its caller, who closes it.
package storage
