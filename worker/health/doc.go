// Package health keeps work away from a worker that cannot do any: its disk is full or fails, or no input root can be
// shown. All actions would fail there, and the sooner they fail the more of them the worker would be given.
//
// It knows the store, whose unused blobs give way, and no actions. Monitor.Watch runs in the caller's goroutine; each
// Check runs in one of its own, which a disk that hangs may hold.
package health
