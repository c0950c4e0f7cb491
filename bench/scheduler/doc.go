// Package scheduler measures the scheduler: its decisions in virtual time, the fairness between
// invocations, and calls over gRPC to a scheduler in a separate process. That process is this
// program with the command of NewChildCommand.
package scheduler
