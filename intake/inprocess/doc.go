// Package inprocess has the calls of a gRPC server within its own process, without a connection.
//
// Callers and handlers see what they see over a connection: metadata, deadlines, the end of either
// side, codes and details of errors, and messages that are theirs to change. What only a connection
// has is missing: compression, credentials, codecs of the caller, and channelz. There are no windows
// either: one message each way waits for its receiver, whatever its size, so both sides of a stream
// must receive while they send.
//
// Each call has a goroutine for its handler, which may outlive the caller's part of the call.
// GracefulStop waits for all of them. A handler that panics ends the process, as in gRPC. The
// package does not know who may call what: that is the matter of Options and of handlers. Lock
// order: each mutex is a leaf.
package inprocess
