// Package alike keeps the programs of a queue in groups by the circumstances under which they run
// commands. Of many groups, or programs, it looks at some: a bound on the work of one look. It knows
// neither queues nor programs, and has no goroutines and no locks.
package alike
