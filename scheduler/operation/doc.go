// Package operation converts between the core's operations and what their clients send and see.
//
// Requests make a request.Operation of an Execute call, its headers, and the Action in storage. Longrunning makes the message that
// clients get of its state. Visible and OwnedBy say whose operation it is. Extras are what the scheduler's other parts keep with it.
//
// The package queues nothing, and has no goroutines. The lock of Platforms is taken without any other, and takes none.
package operation
