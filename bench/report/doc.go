// Package report has the common options and output of benchmarks: progress, a description of the
// machine, and rows as a table and as JSON. A benchmark fails if something does not work, never
// because something is slow.
//
// It has no goroutines and no locks.
package report
