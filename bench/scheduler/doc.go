// Package scheduler measures the scheduler: its decisions in virtual time, shares of invocations, and calls over
// gRPC to a scheduler in a process of its own, which is the program started again with the command of
// NewChildCommand.
package scheduler
