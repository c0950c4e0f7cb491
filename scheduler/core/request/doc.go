// Package request has the requests of clients: an operation on an action, the platform that a
// worker must have for it, and the size class on which it starts.
//
// Everything in it is a value that does not change once the scheduler has it.
package request
