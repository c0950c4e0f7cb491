// Package report has the options and the output of benchmarks: progress, the machine,
// and rows as a table for people and as JSON. A benchmark fails if something does not work, never
// because something is slow.
//
// It has no goroutines and no locks.
package report
