// Package usage says what a command used of its slot: to the scheduler, to the log, and, where it ran out of
// memory, to the client. It measures nothing itself and has no goroutines.
package usage
