// Package connection identifies the connection of a call for handlers, and notifies the scheduler
// when one has ended.
//
// It has no goroutines, and holds no lock while it calls others.
package connection
