// Package offer says which pools of workers may run an action, and why none may.
//
// An Offer is what the workers of a pool have in common: the instance name prefix and the platform.
// An Index has all pools by their offer and yields those that fit an action, the best first: the
// longest prefix, then the one that knows most of what the action asks for, then the one with the
// fewest properties for which it does not ask. Lack says what none has.
//
// The package knows nothing of queues, size classes and what waits. It has no clock, goroutine,
// randomness or I/O and is not safe for concurrent use.
package offer
