// Package connection identifies the connection of a call for handlers, and the start of the worker
// that calls, and notifies the scheduler when a connection has ended.
//
// It has no goroutines, and holds no lock while it calls others.
package connection
