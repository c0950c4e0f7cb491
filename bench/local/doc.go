// Package local compares a farm on one machine with the same work without one: a Bazel build of
// many small actions, and actions that do nothing, by program, by stage and relative to the floor
// of each.
//
// The farm is the real programs, as separate processes, so that the CPU time of each can be
// measured. The package starts no goroutine that outlives the call which started it.
package local
