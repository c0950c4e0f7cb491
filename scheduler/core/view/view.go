package view

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// An Entry is an operation that is not done, for patterns. It is a value.
type Entry struct {
	Operation *request.Operation // never changed
	Worker    string             // that runs it; empty: it is queued
}

// OperationAttributes are the names that patterns of operations may use, besides platform.NAME for
// each property.
func OperationAttributes() []string {
	return []string{
		"action", "client", "correlated", "instance", "invocation",
		"mnemonic", "operation", "stage", "target", "user", "worker",
	}
}

// Attribute returns a value for patterns; false: the operation has no such name.
func (e Entry) Attribute(name string) (string, bool) {
	switch name {
	case "stage":
		if e.Worker == "" {
			return "queued", true
		}
		return "executing", true
	case "worker":
		return e.Worker, e.Worker != ""
	}
	return e.Operation.Attribute(name)
}

// A SizeClass is one on which an action could run, with how long it would wait there.
type SizeClass struct {
	Size uint32
	Wait time.Duration
}

// A Cohort is State's view of one cohort. It is a value.
type Cohort struct {
	quota.Cohort
	// Capacity is how much its workers that take work can run at once, Used the use of known
	// instances, Minimums the sum of guarantees; all in its unit.
	Capacity, Used, Minimums int64
	// Preemptions counts the runs that were stopped.
	Preemptions uint64
	// Uses are the instances with a quota, or with something that runs or waits, in their order.
	Uses []preemption.Use
}

// A QuotaRun is a run that counts.
type QuotaRun struct {
	Key quota.Key
	// Operation was the first that asked for the action.
	Operation *request.Operation
	Worker    string
	Started   time.Time
	Cost      int64
}

// A Tally has the totals of a State since it was made, for metrics.
type Tally struct {
	// Joined operations were added to an action that was queued or running.
	Joined uint64
	// Outgrown runs failed on a smaller size class, or with less time than their own, and were
	// repeated on the largest.
	Outgrown uint64
	// Hedges are second runs of actions that took too long; Won are those that ended first.
	Hedges, Won uint64
	// Spilled tasks went from the queue of their size class to an idle worker of a larger one.
	Spilled uint64
	// Moved tasks went from their queue to an idle worker of another pool.
	Moved uint64
	// Returned runs were lost with their worker, or dropped by it, and queued again.
	Returned uint64
	// Suspensions of workers began.
	Suspensions uint64
}

// Counts are the sizes of a State, for metrics.
type Counts struct {
	// Queued actions wait for a worker to be free, Unmatched ones for a first
	// worker that can serve them; Executing ones are with a worker.
	Queued, Unmatched, Executing int
	// Idle, Busy, Draining and Suspended add up to the known workers. Suspended ones have no
	// actions left.
	Idle, Busy, Draining, Suspended int
}
