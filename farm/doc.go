// Package farm assembles the parts: here a program gets a scheduler with its storage, or a worker,
// from flags. It has none of their logic.
//
// Worker.check and Scheduler.check turn the settings into values before anything is opened or
// created: only they return errors of settings.
//
// Each Run starts what it needs, serves until its context ends and then closes everything in
// reverse order; it owns all its goroutines with work.
package farm
