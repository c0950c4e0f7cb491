// Package program starts the programs of Forerunner, and others, for benchmarks that measure them
// as processes of their own, and says what such a process and those below it have used.
//
// Each Program has one goroutine, which waits for its process; who started it ends it.
package program
