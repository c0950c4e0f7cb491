// Package dial makes the connections of a program to others: by which addresses, whom it trusts, who it says that
// it is, and how storage is spoken to.
//
// It waits for nobody: a connection comes about when it is used. Who dials closes. There are no goroutines but
// those of gRPC, and no locks.
package dial
