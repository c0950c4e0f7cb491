// Package scheduler measures the scheduler: its decisions in virtual time, shares of invocations,
// and calls over gRPC to a scheduler in a separate process, which is this program with the command
// of NewChildCommand.
package scheduler
