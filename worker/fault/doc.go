// Package fault has errors that know with which gRPC code an action ends, and makes of every error
// the status that a client sees. It logs nothing and has no goroutines.
package fault
