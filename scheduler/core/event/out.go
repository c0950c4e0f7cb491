package event

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// Directive is an instruction to a worker.
type Directive uint8

// Instructions to a worker.
const (
	// Continue: go on as before.
	Continue Directive = iota + 1
	// BeIdle: stop the running action, if there is one.
	BeIdle
	// Execute: run Reply.Run, and stop any other action.
	Execute
	// Superseded: a newer call of the same worker replaced this one.
	Superseded
)

// A Reply answers one call of Synchronize. Each call gets exactly one, unless Hangup came first.
type Reply struct {
	Call uint64
	Do   Directive
	// NextSync is the latest time of the worker's next call.
	NextSync time.Time

	// The other fields are for Execute: the first operation that asked for the action, when it
	// asked, and its instance name without the worker's prefix.
	Run    *request.Operation
	Queued time.Time
	Suffix string
	// Timeout replaces the action's if it is not 0 and shorter. The following are for an action
	// with a Size: the class, its expected duration, the number of the attempt (1, or 2 after a
	// failure on a smaller class; 0 without a Size), and the reason for the class.
	Timeout, Expected time.Duration
	SizeClass         uint32
	SizeAttempt       int
	SizeReason        string
}

// Status is the state of one operation. It is a value; nothing in it changes.
type Status struct {
	*request.Operation
	// Rev increases with each change of this operation.
	Rev uint64
	// Stage is UNKNOWN if the operation is forgotten: clients must ask for the action again.
	Stage repb.ExecutionStage_Value
	// Queued is when the operation was submitted. Started, Worker and Attempts describe the current
	// or the last run; they are zero before the first.
	Queued, Started, Ended time.Time
	Worker                 string
	Queue                  *QueueName // the worker's queue; nil: the result came before any client asked
	// Away: the worker got it from an earlier scheduler, and has not called since.
	Away     bool
	Attempts int
	// Response is set at stage COMPLETED, and only then.
	Response *repb.ExecuteResponse
}

// Done reports whether the operation is completed.
func (s Status) Done() bool { return s.Stage == repb.ExecutionStage_COMPLETED }

// A Departure describes a worker that is no longer known.
type Departure struct {
	Worker string
	ID     map[string]string // parts of Worker; read-only
	// Action is the action that it had; empty if none.
	Action string
	// Drained: it had asked for no more work and had no action.
	Drained bool
}

// Out is what the caller of core.State.Step must do, in any order, before or after further events.
type Out struct {
	// Replies answer calls of Synchronize: assignments and stops among them.
	Replies []Reply
	// Notices are the operations that changed, each once, in their new state.
	Notices []Status
	// Left are the operations that ended because no client came back for them, or whose worker did
	// not come back with them after a restart, each with its end. To clients they are forgotten.
	Left []Status
	// Wakes are workers that should call now: their action must stop, or may have to yield. A
	// worker that cannot be woken finds out at its next call.
	Wakes []string
	// Departures and Suspensions are for the log.
	Departures  []Departure
	Suspensions []Suspension
	// Retries are for the log, too. Taken are the runs that were taken from their workers, of which
	// an operation is known.
	Retries []Retry
	Taken   []Taken
	// Ended are the runs to learn from.
	Ended []Ended
	// Err is the reason why the event was refused, or nil; the other fields must be handled all the
	// same. Killed is the number of operations that a Kill ended.
	Err    error
	Killed int
	// NextTick is the latest time for a Tick, unless a later Out changes it. Zero: no Tick is
	// needed before another event.
	NextTick time.Time
}

// A Retry describes an operation that its worker could not run, for no fault of the action, and
// that is to run on another one.
type Retry struct {
	Taken
	Code    codes.Code
	Message string
}

// A Suspension describes workers that get no actions for a while, because their actions failed and
// those of other workers did not.
type Suspension struct {
	// ID is the common part of the workers' identities. It is read-only.
	ID map[string]string
	// Row is the number of consecutive failures, Failures the number among the last 16 actions;
	// Last is the action that failed last.
	Row, Failures int
	Last          string
	Until         time.Time
}

// An Ended is one run of an action with a Size, from which the caller learns.
type Ended struct {
	*request.Operation
	// Class is the worker's size class, Largest the largest existing one.
	Class, Largest uint32
	// Again: it failed on a smaller class than the largest, or with a shorter timeout than its own,
	// and now runs again on the largest. Late: it is the second of two simultaneous runs, which
	// started because the first one took longer than Size.Timeout.
	Again, Late bool
	Response    *repb.ExecuteResponse
}

// A QueueName names a queue for people: two platforms may read alike.
type QueueName struct {
	Prefix, Platform, Cohort string
	SizeClass                uint32
}
