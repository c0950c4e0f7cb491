// Package local measures a farm on one machine against doing the same work without one: a build of many small
// actions by Bazel, and actions that do nothing, by program, by stage and beside the floor of each.
//
// The farm is the real programs, as processes of their own, so that the CPU time of each can be told. The package
// starts no goroutine that outlives the call which started it.
package local
