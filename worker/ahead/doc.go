// Package ahead fetches what an action is likely to read while its other stages go on: it looks for what
// similar actions read, races the command for it, records what the command does read, and remembers that. None
// of it can fail the action.
//
// A Fetch has one goroutine, which End waits for; the race has its own (package prefetch).
package ahead
