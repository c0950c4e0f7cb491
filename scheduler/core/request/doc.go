// Package request has the requests of clients: an operation on an action, the platform that its
// worker needs, and the size class on which it starts. All of them are values that do not change
// once the scheduler has them.
package request
