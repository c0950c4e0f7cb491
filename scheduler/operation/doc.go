// Package operation converts between the core's operations and the messages of their clients.
//
// Requests make a request.Operation of an Execute call, its headers, and the Action in storage.
// Longrunning makes the message with its state for clients. Visible and OwnedBy check the owner of
// an operation. Extras are data of the scheduler's other parts.
//
// The package queues nothing, and has no goroutines. Nobody holds another lock together with the
// lock of Platforms.
package operation
