// Package request has what a client asks for: an operation on an action, the platform that a worker must have for it,
// and the size class on which it starts.
//
// Everything in it is a value that nobody changes once the scheduler has it.
package request
