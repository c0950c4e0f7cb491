// Package program starts the programs of Forerunner, and others, for benchmarks that measure them
// as processes of their own, and measures what such a process and those below it use.
//
// Each Program has one goroutine, which waits for its process; the caller of Start ends it.
package program
