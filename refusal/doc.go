// Package refusal tells apart two kinds of errors of system calls: that a machine lacks something,
// and faults that may pass. A program may do without what is lacking; after a fault it must not give
// up protection that the machine has. It has no goroutines and no state.
package refusal
