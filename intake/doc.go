// Package intake bounds what a gRPC server takes in from its callers: connections, calls, and bytes
// of requests that are on their way.
//
// gRPC reads the request of a unary call before any interceptor runs, however large it is and whoever
// sends it. Here a Registrar makes streams of all methods, so that the caller is known, and has been
// charged, before the first byte of his request is asked for: until then a call costs what fits into
// one window of flow control. A message beyond smallMessage waits until there is room for its whole
// length, of this caller and in all, so what has begun to arrive can always end, and is given up when
// the rest does not come in time.
//
// Nor does gRPC bound what comes before that: calls that wait for a goroutine, and answers to frames. A connection is read
// only as far as there is room for the one (see beginnings), and its client reads the other (see frames).
//
// A Gate does the same for connections. It prefers those whose identity is known to those that have
// shown none: the oldest of these makes room.
//
// The package does not know who may do what (see package auth), and not what the messages mean. It
// starts no goroutines but those of timers. Lock order: each mutex is a leaf.
package intake
