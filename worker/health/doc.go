// Package health keeps actions away from a worker that cannot run any: its disk is full or fails,
// or it cannot make input roots. All actions would fail there, and the sooner they fail the more of
// them the worker would get.
//
// It knows the store, whose unused blobs it evicts, and no actions. Monitor.Watch runs in the
// caller's goroutine; each Check runs in one of its own, which a disk that hangs may block.
package health
