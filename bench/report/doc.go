// Package report is what benchmarks are told and what they tell: options, progress, the machine,
// and rows as a table for people and as JSON. A benchmark fails when something does not work, never
// because something is slow.
//
// It has no goroutines and no locks.
package report
