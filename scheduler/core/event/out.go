package event

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// Directive is what a worker is told.
type Directive uint8

// What a worker can be told.
const (
	// Continue as it is.
	Continue Directive = iota + 1
	// BeIdle: stop what runs, if anything does.
	BeIdle
	// Execute Reply.Run, and stop what else runs.
	Execute
	// Superseded: a newer call of the same identity took the place of this one.
	Superseded
)

// A Reply answers one call of Synchronize. Each call gets exactly one, unless
// Hangup took it back first.
type Reply struct {
	Call uint64
	Do   Directive
	// NextSync is when the worker has to call again at the latest.
	NextSync time.Time

	// The rest is for Execute: the operation that was first to ask for the
	// action, when it did, and its instance name less the worker's prefix.
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
	// Stage is UNKNOWN if the operation is forgotten: clients are to ask for the action once more.
	Stage repb.ExecutionStage_Value
	// Queued is when the operation was submitted; Started, Worker and Attempts
	// are about the present run or the last one, zero before the first.
	Queued, Started, Ended time.Time
	Worker                 string
	Queue                  *QueueName // the worker's; nil: it brought the result before anybody asked
	// Away: the worker had it before this State, and has not called since.
	Away     bool
	Attempts int
	// Response is set at stage COMPLETED, and only then.
	Response *repb.ExecuteResponse
}

// Done reports whether the operation is completed.
func (s Status) Done() bool { return s.Stage == repb.ExecutionStage_COMPLETED }

// A Departure tells of a worker that is no longer known.
type Departure struct {
	Worker string
	ID     map[string]string // what Worker was made of; not to be changed
	// Action is what it held, empty if nothing.
	Action string
	// Drained: it had asked for no more work and held none.
	Drained bool
}

// Out is what the caller of core.State.Step has to do, in any order, before or after
// it feeds further events.
type Out struct {
	// Replies answer calls of Synchronize: assignments and stops among them.
	Replies []Reply
	// Notices are the operations that changed, each once, in its new state.
	Notices []Status
	// Wakes are workers that should call now: what they run is to stop, or may have to give way. Who cannot be told
	// finds out at its next call.
	Wakes []string
	// Departures and Suspensions are for the log.
	Departures  []Departure
	Suspensions []Suspension
	// Ended are the runs to learn from.
	Ended []Ended
	// Err is why the event was refused, nil if it was not; the rest is to be done all the same. Killed is how many
	// operations a Kill ended.
	Err    error
	Killed int
	// NextTick is when a Tick has to come at the latest, unless a later Out
	// says otherwise. Zero: not before some other event.
	NextTick time.Time
}

// A Suspension tells of workers that get nothing for a while, because what they ran has failed and what others ran has not.
type Suspension struct {
	// ID is what the workers have in common. It is not to be changed.
	ID map[string]string
	// Row is how many actions failed one after the other, Failures how many of the last 16; Last is the one that failed last.
	Row, Failures int
	Last          string
	Until         time.Time
}

// An Ended is one run of an action with a Size, for the caller to learn from.
type Ended struct {
	*request.Operation
	// Class is that of the worker, Largest the largest one that there is.
	Class, Largest uint32
	// Again: it failed on a smaller class than the largest, or with less time than its own, and runs on the largest
	// now. Late: it is the second of two runs at once, begun because the first one took longer than Size.Timeout.
	Again, Late bool
	Response    *repb.ExecuteResponse
}

// A QueueName names a queue for people: two platforms may read alike.
type QueueName struct {
	Prefix, Platform, Cohort string
	SizeClass                uint32
}
