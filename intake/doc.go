// Package intake limits what a gRPC server accepts from its callers: connections, calls, and bytes
// of requests on their way.
//
// gRPC reads the request of a unary call before any interceptor runs, however large it is and
// whoever sends it. Here a Registrar makes streams of all methods, so that the caller is known, and
// has been charged, before the first byte of its request is read: until then a call costs only one
// window of flow control. A message beyond smallMessage waits until there is room for its whole
// length, of this caller and in total, so a message that has begun to arrive can always end; it is
// aborted when the rest does not come in time.
//
// gRPC does not limit the steps before that either: calls that wait for a goroutine, and answers to
// frames. A connection is read only while there is room for the former (see beginnings), and while
// its client reads the latter (see frames).
//
// A Gate does the same for connections. It prefers those with an identity: the oldest one without
// yields.
//
// A call from within the process (Server.Dial, package inprocess) has no connection. It goes through
// the same steps, and is charged to nobody.
//
// The package does not know rights (see package auth), nor the meaning of messages. It starts no
// goroutines except those of timers and, within the process, of handlers, which wait a minute for
// further calls (package crew). Lock order: each mutex is a leaf.
package intake
