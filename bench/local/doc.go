// Package local compares a farm on one machine with the same work without a farm: a Bazel build of
// many small actions, and actions that do nothing. Rows show the costs by program, by stage, and
// relative to their minimum (package floor).
//
// The farm consists of the real programs as separate processes, so that the CPU time of each can be
// measured. No goroutine outlives the call that started it.
package local
