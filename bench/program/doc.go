// Package program starts the programs of Forerunner, and others, as separate processes for
// benchmarks, and measures the resource usage of a process and its descendants.
//
// Each Program has one goroutine, which waits for the process. The caller of Start must call End.
package program
