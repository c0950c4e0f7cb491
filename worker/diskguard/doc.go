// Package diskguard watches the disk that actions write to. While it is full, or read-only, a worker takes no action: all of
// them would fail, and the sooner they fail the more of them it would be given.
//
// It knows the store, whose unused blobs give way, and no actions. Guard.Watch has no goroutine of its own.
package diskguard
