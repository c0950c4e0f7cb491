package event

import (
	"errors"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// Why events are refused.
var (
	// ErrUnknown: nothing of that name exists, or it no longer does.
	ErrUnknown = errors.New("it is not known")
	// ErrQueueFull: tuning.Config.MaxQueued or tuning.Config.MaxPerQueue actions are waiting
	// already.
	ErrQueueFull = errors.New("the queue is full")
	// ErrClientFull: the client has tuning.Config.MaxPerClient operations already.
	ErrClientFull = errors.New("the client has too many operations")
	// ErrDuplicate: an operation of this name exists.
	ErrDuplicate = errors.New("an operation of this name exists")
	// ErrTwin: another process uses the same worker identity.
	ErrTwin = errors.New("another process has this worker's identity")
)

// An Event is an input of core.State: Submit, Attach, Detach and Cancel of operations, *Report,
// Hangup and Disconnect of workers, an Order of operators, Restore, or Tick.
type Event interface{ isEvent() }

func (Submit) isEvent()     {}
func (Attach) isEvent()     {}
func (Detach) isEvent()     {}
func (Cancel) isEvent()     {}
func (*Report) isEvent()    {}
func (Hangup) isEvent()     {}
func (Disconnect) isEvent() {}
func (Order) isEvent()      {}
func (Restore) isEvent()    {}
func (Settle) isEvent()     {}
func (Tick) isEvent()       {}

// Submit asks for an operation, for which one client waits from then on. It is refused with
// ErrQueueFull, ErrClientFull or ErrDuplicate.
type Submit struct{ *request.Operation }

// Attach adds a client that waits for an operation, or is refused with ErrUnknown.
type Attach struct{ Name string }

// Detach removes a client that Submit or Attach has counted. If it was the last one, the operation
// is parked for tuning.Config.ClientGrace: it keeps its position in the queue, no worker gets it,
// and its run, after a few seconds, yields to tasks with waiting clients. With Now, which a client
// can ask for, it ends at once.
type Detach struct {
	Name string
	Now  bool
}

// Cancel ends an operation with CANCELLED, even if clients wait for it, or is refused with
// ErrUnknown. An operation that is done does not change.
type Cancel struct{ Name string }

// Doing is the state that a worker reports.
type Doing uint8

// States of a worker.
const (
	// Idle: it holds no action.
	Idle Doing = iota + 1
	// Executing: it has the action Report.Action, at any stage.
	Executing
	// Completed: Report.Action has ended with Report.Response.
	Completed
)

// A Stage is a worker's progress with an action.
type Stage uint8

// Stages of an action.
const (
	// Fetching: the inputs of the command are being prepared, or the worker does not report stages.
	Fetching Stage = iota
	// Running: its command runs.
	Running
	// Uploading: the command has ended, and its outputs are being stored.
	Uploading
)

// A Report is one call of Synchronize. The answer is in the Out of this event or, if the worker is
// idle and there is nothing to do, in a later one. If another process with a live connection uses
// the same worker identity, the Report is refused with ErrTwin and has no answer.
type Report struct {
	// Call identifies this call; each call has another one, and none has 0.
	Call uint64
	// Worker is the caller's identity (names.WorkerKey); ID and Prefix are its parts.
	Worker string
	ID     map[string]string
	// Connection is the call's connection, for Disconnect; 0 if it is unknown.
	Connection uint64
	// Boot distinguishes the processes that use this worker identity, one after another or, by
	// mistake, at the same time; empty if it is unknown. Address is the source of the call, for
	// people.
	Boot, Address string
	// Circumstances identifies how and where the worker runs commands; workers with the same value
	// may reuse each other's runs. Empty if it reuses none. No decision depends on it.
	Circumstances string
	// Slots is the number of commands that the worker's program runs at once; 0 if it is unknown.
	// It is for people: no decision depends on it.
	Slots int
	// Prefix, Platform and SizeClass define which actions it serves.
	Prefix    string
	Platform  request.Platform
	SizeClass uint32

	Doing Doing
	// Action is the action's digest, without its function, because workers do not know it.
	Action digest.Digest
	// Instance is the instance name of Action, if it is Named: Buildbarn's workers report none.
	Instance string
	Named    bool
	Response *repb.ExecuteResponse
	// OutOfMemory: the run failed with Response for lack of memory.
	OutOfMemory bool
	// PreferIdle: it wants no further action.
	PreferIdle bool
	// Stage is the stage of the action that it executes.
	Stage Stage
}

// Hangup means that the caller of a Report no longer waits for the answer.
type Hangup struct {
	Worker string
	Call   uint64
}

// Disconnect means that a connection has ended. The workers that called over it and have not come
// back over another one get tuning.Config.DisconnectSlack to do so.
type Disconnect struct{ Connection uint64 }

// Restore adds the action that a worker had when an earlier State ended. Worker and operation are
// treated as if the worker were late with its call: it has tuning.Config.WorkerSlack to come back,
// and a client has ClientGrace. If they do not come back, the operation is forgotten, and not run
// again: it may have ended meanwhile, and only a client that asks for the action can know. If any
// of it is known already, nothing happens.
type Restore struct{ Held }

// A Held is an operation that a worker is running, with the data that the next scheduler needs.
type Held struct {
	*request.Operation
	Queued, Started time.Time
	Attempts        int
	// The worker, as in its Report.
	Worker         string
	ID             map[string]string
	Prefix         string
	WorkerPlatform request.Platform
	SizeClass      uint32
}

// Tick handles due timers. Calling it early or often does no harm.
type Tick struct{}

// Settle ends the time of Config.Settle: every worker that could have an action has called, or
// there are no such workers.
type Settle struct{}

// An Order is embedded in each operator's event. Package core has these events and their
// transitions.
type Order struct{}
