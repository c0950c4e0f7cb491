// Package dial makes the connections of a program to others: addresses, trusted authorities,
// identity, and options of storage.
//
// It never waits: a connection is made when it is first used. The caller of Dial closes it. There
// are no goroutines except gRPC's, and no locks.
package dial
