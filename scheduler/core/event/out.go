package event

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// Directive is an instruction to a worker.
type Directive uint8

// Instructions to a worker.
const (
	// Continue as it is.
	Continue Directive = iota + 1
	// BeIdle: stop the running action, if there is one.
	BeIdle
	// Execute Reply.Run, and stop any other action.
	Execute
	// Superseded: a newer call of the same identity took the place of this one.
	Superseded
)

// A Reply answers one call of Synchronize. Each call gets exactly one, unless
// Hangup took it back first.
type Reply struct {
	Call uint64
	Do   Directive
	// NextSync is when the worker must call again at the latest.
	NextSync time.Time

	// The other fields are for Execute: the operation that was first to ask for the action, when it
	// did, and its instance name without the worker's prefix.
	Run    *request.Operation
	Queued time.Time
	Suffix string
	// Timeout is in force instead of the action's if it is not 0 and shorter. For an action
	// with a Size: the class, how long it is thought to run, which attempt this is (1, or 2 after a
	// failure on a smaller class; 0 without a Size), and why it is there.
	Timeout, Expected time.Duration
	SizeClass         uint32
	SizeAttempt       int
	SizeReason        string
}

// Status is the state of one operation. It is a value; nothing in it changes.
type Status struct {
	*request.Operation
	// Rev grows with each change of this operation.
	Rev uint64
	// Stage is UNKNOWN if the operation is forgotten: clients must ask for the action again.
	Stage repb.ExecutionStage_Value
	// Queued is when the operation was submitted; Started, Worker and Attempts
	// are about the present run or the last one, zero before the first.
	Queued, Started, Ended time.Time
	Worker                 string
	Queue                  *QueueName // the worker's; nil: the result came before any client asked
	// Away: the worker had it before this State, and has not called since.
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
	ID     map[string]string // the parts of Worker; must not be changed
	// Action is the one that it held, empty if none.
	Action string
	// Drained: it had asked for no more work and held none.
	Drained bool
}

// Out is what the caller of core.State.Step must do, in any order, before or after further events.
type Out struct {
	// Replies answer calls of Synchronize: assignments and stops among them.
	Replies []Reply
	// Notices are the operations that changed, each once, in its new state.
	Notices []Status
	// Wakes are workers that should call now: their action must stop, or may have to yield. A
	// worker that cannot be woken learns it at its next call.
	Wakes []string
	// Departures and Suspensions are for the log.
	Departures  []Departure
	Suspensions []Suspension
	// Ended are the runs to learn from.
	Ended []Ended
	// Err is why the event was refused, nil if it was not; the other fields must be handled all the
	// same. Killed is how many operations a Kill ended.
	Err    error
	Killed int
	// NextTick is when a Tick must come at the latest, unless a later Out changes it. Zero: not
	// before another event.
	NextTick time.Time
}

// A Suspension describes workers that get no actions for a while, because their actions failed and
// those of other workers did not.
type Suspension struct {
	// ID is the common part of the workers' identities. It must not be changed.
	ID map[string]string
	// Row is how many actions failed in a row, Failures how many of the last 16; Last is the one
	// that failed last.
	Row, Failures int
	Last          string
	Until         time.Time
}

// An Ended is one run of an action with a Size, for the caller to learn from.
type Ended struct {
	*request.Operation
	// Class is that of the worker, Largest the largest existing one.
	Class, Largest uint32
	// Again: it failed on a smaller class than the largest, or with less time than its own, and
	// runs on the largest now. Late: it is the second of two runs at once, begun because the first
	// one took longer than Size.Timeout.
	Again, Late bool
	Response    *repb.ExecuteResponse
}

// A QueueName names a queue for people: two platforms may read alike.
type QueueName struct {
	Prefix, Platform, Cohort string
	SizeClass                uint32
}
