// Package ahead prefetches the inputs of an action during its other stages: it looks up the profile
// of similar actions, prefetches their files, records the reads of the command, and remembers them.
// None of its failures reaches the action.
//
// A Fetch has one goroutine, which End waits for; prefetching has its own (package prefetch).
package ahead
