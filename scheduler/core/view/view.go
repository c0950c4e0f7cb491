package view

import (
	"time"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// An Entry is an unfinished operation, for patterns. It is a value.
type Entry struct {
	Operation *request.Operation // read-only
	Worker    string             // the worker that runs it, as names.WorkerKey; empty if it is queued
}

// Stages are the values that stage has in patterns of operations.
func Stages() []string { return []string{queued, executing} }

const (
	queued    = "queued"
	executing = "executing"
)

// Attribute returns a value for patterns; false: the operation has no such name.
func (e Entry) Attribute(name string) (string, bool) {
	switch name {
	case "stage":
		if e.Worker == "" {
			return queued, true
		}
		return executing, true
	case "worker":
		machine, _ := names.Machine(e.Worker)
		return machine, e.Worker != ""
	}
	return e.Operation.Attribute(name)
}

// A SizeClass is a class on which an action could run, and the wait for it.
type SizeClass struct {
	Size uint32
	Wait time.Duration
}

// A Cohort is State's view of one cohort. It is a value.
type Cohort struct {
	quota.Cohort
	// Capacity is how much its workers that take work can run at once, Used is the use of known
	// instances, Minimums is the sum of guarantees; all in its unit.
	Capacity, Used, Minimums int64
	// Preemptions is the number of stopped runs.
	Preemptions uint64
	// Uses are the instances with a quota, or with running or waiting actions, in order.
	Uses []preemption.Use
}

// A QuotaRun is a run that counts in a quota.
type QuotaRun struct {
	Key quota.Key
	// Operation is the first operation that asked for the action.
	Operation *request.Operation
	Worker    string
	Started   time.Time
	Cost      int64
}

// A Tally has the totals of a State since it was created, for metrics.
type Tally struct {
	// Joined is the number of operations that joined an action that was queued or running.
	Joined uint64
	// Outgrown is the number of runs that failed on a smaller size class, or with a shorter timeout
	// than their own, and were repeated on the largest class.
	Outgrown uint64
	// Hedges is the number of second runs of slow actions; Won is the number of those that ended
	// first.
	Hedges, Won uint64
	// Spilled is the number of tasks that moved from the queue of their size class to an idle
	// worker of a larger one.
	Spilled uint64
	// Moved is the number of tasks that moved to an idle worker of another pool.
	Moved uint64
	// Returned is the number of runs that were queued again because the worker was lost,
	// dropped them, or could not run them.
	Returned uint64
	// Suspensions is the number of suspensions of workers.
	Suspensions uint64
}

// Counts are the sizes of a State, for metrics.
type Counts struct {
	// Queued actions wait for a free worker, Unmatched ones for a first worker that can run them;
	// Executing ones are on a worker.
	Queued, Unmatched, Executing int
	// Idle, Busy, Draining and Suspended add up to the known workers. Suspended ones have no
	// actions left.
	Idle, Busy, Draining, Suspended int
}
