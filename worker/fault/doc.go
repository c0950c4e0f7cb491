// Package fault has errors with the gRPC code of an action's end, and turns every error into the
// status for the client. It logs nothing and has no goroutines.
package fault
