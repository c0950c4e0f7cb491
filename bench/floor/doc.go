// Package floor measures the minimum cost of an action's parts on this machine: a process, a call
// and a mount. Benchmarks report how close a farm comes to this minimum.
//
// All goroutines end before Measure returns.
package floor
