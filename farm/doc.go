// Package farm puts the parts together: it is where a program gets a scheduler
// with its storage, or a worker, from flags. It holds no logic of either.
//
// Each Run starts what it needs, serves until its context ends and then takes
// everything down again in the reverse order; it owns all its goroutines.
package farm
