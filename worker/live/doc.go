// Package live shows what running commands print, and how the worker is doing, to those who ask the
// scheduler for it. All of it is a hint: no failure of it reaches an action.
//
// Outputs.Run owns the goroutines: one for the call that asks, one that reports, and one for each stream that is shown.
package live
