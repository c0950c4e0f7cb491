// Package floor measures what the kernel and a call take for the parts of an action on this
// machine, so that benchmarks can say how far from that a farm is.
//
// Its goroutines end before Measure returns.
package floor
