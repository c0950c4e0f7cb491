// Package rpctest serves gRPC to tests without a network.
//
// Serve runs a real server over memory; it owns the goroutine of that server and ends it with the
// test. Services calls methods with encoded messages, as they come from the network, for tests that
// send what no client would: interceptors and limits of a server are not there, it starts no
// goroutines and has no locks. Services are registered before the first call, and calls may be
// concurrent as far as the services allow.
package rpctest
