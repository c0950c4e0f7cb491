// Package rpctest calls gRPC services with bytes as they come from the network, without one: for
// tests that send what no client would. It refuses nothing; interceptors and limits of a server
// are not there. It starts no goroutines and has no locks: services are registered before the
// first call, and calls may be concurrent as far as the services allow.
package rpctest
