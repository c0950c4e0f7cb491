package client

import (
	"context"
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
)

// A Stage is how far an execution has come.
type Stage int

// The stages in their order. An execution may skip some, and goes back when it
// has to be started again.
const (
	Uploading Stage = iota + 1
	CacheCheck
	Queued
	Executing
	Done
	// Silent: the server answers nothing. Execute waits for it; the stage that it was at comes after it.
	Silent
)

// String returns the stage in lower case, as shown to a user.
func (s Stage) String() string {
	switch s {
	case Uploading:
		return "uploading"
	case CacheCheck:
		return "checking the cache"
	case Queued:
		return "queued"
	case Executing:
		return "executing"
	case Done:
		return "done"
	case Silent:
		return "the farm does not answer; waiting for it"
	}
	return "unknown"
}

// An Event says that a stage was reached or, while uploading, how far it is.
type Event struct {
	Stage Stage
	// DoneBytes of TotalBytes are uploaded. The total counts only what the server
	// lacked. Both are set in Uploading events alone.
	DoneBytes, TotalBytes int64
}

// A Request is one command to be executed remotely.
type Request struct {
	// Storage is where blobs are, if the server does not have them itself; nil: it does.
	Storage  grpc.ClientConnInterface
	Instance string          // REv2 instance name; may be empty
	Function digest.Function // default SHA-256; must be the one Inputs were scanned with
	Command  *repb.Command   // not changed; lists need not be sorted
	Platform *repb.Platform  // not changed; nil means the one in Command, if any
	Inputs   *Inputs         // nil is an empty input root
	Timeout  time.Duration   // 0 leaves it to the server
	Priority int32           // REv2 ExecutionPolicy: lower runs earlier

	DoNotCache      bool // the result is neither cached nor taken from the cache
	SkipCacheLookup bool // execute although a result may be cached
	// CancelWithContext has the server cancel what runs when the context ends first, as far as
	// nobody else waits for the same. Else the server sees that nobody waits, in its time.
	CancelWithContext bool

	// Metadata says who asks, for the server's logs and fairness; nil is fine. It
	// is not changed: what it leaves out of tool, invocation and action is added.
	Metadata *repb.RequestMetadata
	// Progress may be nil. Its calls do not overlap; it must not block.
	Progress func(Event)
	// Stdout and Stderr are shown what the command prints while it runs, if the server
	// has it; nil: nothing is. They may be shown less than all, see Live.Rest.
	Stdout, Stderr *Live
	Logger         *zap.Logger // may be nil
}

// An Outcome is what became of an action that the server took on.
type Outcome struct {
	Result  *repb.ActionResult // may be nil when Status is not
	Cached  bool               // the result was there already
	Message string             // from the server, for the user; often empty
	// Status is why the action did not run to its end, as a gRPC status error
	// (DeadlineExceeded: it timed out); nil when it did, whatever its exit code.
	Status error
	Action digest.Digest

	Scan          time.Duration // Inputs.Took
	Upload        time.Duration // asking what is missing included
	UploadedBlobs int
	UploadedBytes int64
}

// Execute uploads what the server at conn lacks of req and executes it, waiting
// as long as ctx lets it. A stream that breaks is taken up again; inputs that the
// server lost between upload and execution are uploaded once more.
//
// An error means that there is no outcome, and keeps the server's status
// (status.FromError). That the action ran and failed is no error.
func Execute(ctx context.Context, conn grpc.ClientConnInterface, req Request) (*Outcome, error) {
	x, err := newExecution(conn, req)
	if err != nil {
		return nil, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, names.RequestMetadataHeader, x.metadata)
	for again := true; ; again = false {
		if err := x.upload(ctx); err != nil {
			return nil, fmt.Errorf("upload inputs: %w", err)
		}
		response, err := x.run(ctx)
		if err == nil {
			err = statusError(response)
		}
		if again && lacksBlobs(err) {
			continue
		}
		if err != nil && response == nil {
			return nil, fmt.Errorf("execute action %s: %w", x.action, err)
		}
		x.stage(Done)
		x.outcome.Result = response.GetResult()
		x.outcome.Cached = response.GetCachedResult()
		x.outcome.Message = response.GetMessage()
		x.outcome.Status = err
		return x.outcome, nil
	}
}

// statusError is why an action did not run to its end; nil if it did.
func statusError(response *repb.ExecuteResponse) error {
	if response.GetStatus() == nil {
		return nil
	}
	return status.ErrorProto(response.GetStatus())
}

// lacksBlobs reports whether err says that blobs of the action are not in the
// storage, as REv2 has it in the documentation of Execution.Execute.
func lacksBlobs(err error) bool {
	s := status.Convert(err)
	if s.Code() != codes.FailedPrecondition {
		return false
	}
	for _, detail := range s.Details() {
		failure, _ := detail.(*errdetails.PreconditionFailure)
		for _, v := range failure.GetViolations() {
			if v.GetType() == "MISSING" {
				return true
			}
		}
	}
	return false
}
