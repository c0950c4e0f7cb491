package core

import (
	"errors"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// Errors of Submit.
var (
	// ErrQueueFull says that Config.MaxQueued or Config.MaxPerQueue actions wait
	// already.
	ErrQueueFull = errors.New("the queue is full")
	// ErrClientFull says that the client has Config.MaxPerClient operations already.
	ErrClientFull = errors.New("the client has too many operations")
	// ErrDuplicate says that an operation of this name exists.
	ErrDuplicate = errors.New("an operation of this name exists")
)

// An Operation is what a client asks for. State keeps it and never changes it;
// nor may the caller once it is submitted.
type Operation struct {
	// Name identifies the operation; the caller makes it unique.
	Name string
	// Instance is the client's instance name.
	Instance string
	// Digest is the action's.
	Digest digest.Digest
	// Action is what the worker is given; its timeout is set.
	Action *repb.Action
	// Platform is what a worker must have.
	Platform Platform
	// Private operations are never joined with others of the same action.
	Private bool
	// Priority and Expected order the operations of one invocation: the lowest
	// priority goes first (REv2, ExecutionPolicy), then what is thought to run
	// longest. Priorities also shift the shares of invocations; see package fair.
	Priority int32
	Expected time.Duration
	// User is who asks, Claims are what else is known of him; empty if he has not
	// said who he is.
	User   string
	Claims map[string]string
	// Client tells apart whose operations Config.MaxPerClient counts; empty: nobody's.
	Client string
	// Size says on which size class the action starts.
	Size Size

	// The rest is carried along: who asked, what the worker copies into the result besides, the
	// W3C trace context, and whatever else the caller knows of it. Each may be nil or empty.
	Request   Metadata
	Auxiliary []*anypb.Any
	Trace     map[string]string
	Owner     any
}

// Doing is what a worker says it does.
type Doing uint8

// What a worker can do.
const (
	// Idle: it holds no action.
	Idle Doing = iota + 1
	// Executing: it holds Report.Action, at whatever stage.
	Executing
	// Completed: Report.Action has ended with Report.Response.
	Completed
)

// A Report is one call of Synchronize.
type Report struct {
	// Call identifies this call; the caller never uses a value twice.
	Call uint64
	// Worker is the caller's identity (WorkerKey) and ID what that was made of with Prefix.
	Worker string
	ID     map[string]string
	// Connection is the one that the call came over, for Disconnect; 0 if it is not
	// known.
	Connection uint64
	// Prefix, Platform and SizeClass say which actions it serves.
	Prefix    string
	Platform  Platform
	SizeClass uint32

	Doing Doing
	// Action is its digest, whose function says nothing: workers do not know it.
	Action   digest.Digest
	Response *repb.ExecuteResponse
	// OutOfMemory: the run that has failed with Response lacked memory.
	OutOfMemory bool
	// PreferIdle: it wants no further action.
	PreferIdle bool
	// Uploading: the action that it executes has run, and its outputs are being stored.
	Uploading bool
	// Running: its command runs.
	Running bool
}

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
	Run    *Operation
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
	*Operation
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

// Out is what the caller of an event has to do, in any order, before or after
// it feeds further events.
type Out struct {
	// Replies answer calls of Synchronize: assignments and stops among them.
	Replies []Reply
	// Notices are the operations that changed, each once, in its new state.
	Notices []Status
	// Departures are for the log.
	Departures []Departure
	// Ended are the runs to learn from.
	Ended []Ended
	// NextTick is when Tick has to be called at the latest, unless a later Out
	// says otherwise. Zero: not before some other event.
	NextTick time.Time
}

// A Tally counts what has happened to a State since it was made, for metrics.
type Tally struct {
	// Joined operations were added to an action that was queued or running.
	Joined uint64
	// Outgrown runs failed on a smaller size class, or with less time than their own, and were repeated on the largest.
	Outgrown uint64
	// Hedges are second runs beside one that took too long; Won are those that ended first.
	Hedges, Won uint64
	// Returned runs were lost with their worker, or dropped by it, and queued again.
	Returned uint64
}

// Counts are the sizes of a State, for metrics.
type Counts struct {
	// Queued actions wait for a worker to be free, Unmatched ones for a first
	// worker that can serve them; Executing ones are with a worker.
	Queued, Unmatched, Executing int
	// Idle, Busy and Draining sum up to the known workers.
	Idle, Busy, Draining int
}
