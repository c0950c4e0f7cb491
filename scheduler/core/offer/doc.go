// Package offer decides which pools of workers may run an action, and says why none may.
//
// An Offer is common to the workers of a pool: the instance name prefix and the platform. An Index
// has all pools by their offer and yields those that fit an action, the best first: the longest
// prefix, then the one that knows most of the action's properties, then the one with the fewest
// properties that the action does not ask for. Lack says what no pool has.
//
// The package does not know queues, size classes and waiting tasks. It has no clock, goroutine,
// randomness or I/O and is not safe for concurrent use.
package offer
