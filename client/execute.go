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

// A Stage is the progress of an execution.
type Stage int

// The stages in their order. An execution may skip some, and goes back when it starts again.
const (
	Uploading Stage = iota + 1
	CacheCheck
	Queued
	Executing
	Done
	// Silent: the server does not answer. Execute waits for it, and reports the earlier stage again
	// when the server answers.
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

// An Event reports that a stage was reached or, during the upload, its progress.
type Event struct {
	Stage Stage
	// DoneBytes of TotalBytes are uploaded. The total counts only blobs that the server lacked.
	// Both are set in Uploading events only.
	DoneBytes, TotalBytes int64
}

// A Request is one command to be executed remotely.
type Request struct {
	// Storage is the connection to the storage; nil: the server has the storage itself.
	Storage  grpc.ClientConnInterface
	Instance string          // REv2 instance name; may be empty
	Function digest.Function // default SHA-256; must be the function that Scan used for Inputs
	Command  *repb.Command   // not changed; lists need not be sorted
	Platform *repb.Platform  // not changed; nil: the platform in Command, if any
	Inputs   *Inputs         // nil means an empty input root
	Timeout  time.Duration   // 0 means the server's default
	Priority int32           // priority of REv2 ExecutionPolicy: lower runs earlier

	DoNotCache      bool // neither cache the result nor use a cached one
	SkipCacheLookup bool // execute even if a result is cached
	// CancelWithContext makes the server cancel the run when the context ends, unless other clients
	// wait for the same run. Without it, the server notices after some time that no client waits.
	CancelWithContext bool

	// Metadata identifies the caller in the server's logs and for fair sharing. It may be nil and
	// is not changed: Execute adds a missing tool, invocation and action.
	Metadata *repb.RequestMetadata
	// Progress may be nil. Calls of it do not overlap. It must not block.
	Progress func(Event)
	// Stdout and Stderr receive the output of the running command, if the server offers it; nil: no
	// live output. Live output may be incomplete, see Live.Rest.
	Stdout, Stderr *Live
	Logger         *zap.Logger // may be nil
}

// An Outcome is the result of an action that the server accepted.
type Outcome struct {
	Result  *repb.ActionResult // may be nil if Status is not nil
	Cached  bool               // the result came from the cache
	Message string             // from the server, for the user; usually empty
	// Page is the address of the operation's page; empty: the server has none.
	Page string
	// Status is a gRPC status error with the reason why the action did not complete, such as
	// DeadlineExceeded for a timeout. It is nil if the command completed, with any exit code.
	Status error
	Action digest.Digest

	Scan          time.Duration // Inputs.Took
	Upload        time.Duration // including the search for missing blobs
	UploadedBlobs int
	UploadedBytes int64
}

// Execute uploads the blobs of req that the server at conn lacks, executes req, and waits until it
// completes or ctx ends. It resumes a broken stream. If the server loses inputs between upload and
// execution, it uploads them again.
//
// An error means that there is no outcome. It wraps the server's status (status.FromError). A
// failure of the command is not an error.
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

// statusError returns why an action did not complete; nil if it did.
func statusError(response *repb.ExecuteResponse) error {
	if response.GetStatus() == nil {
		return nil
	}
	return status.ErrorProto(response.GetStatus())
}

// lacksBlobs reports whether err says that the storage lacks blobs of the action, in the form that
// REv2 defines for Execution.Execute.
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
