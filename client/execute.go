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
	// Silent: the server does not answer. Execute waits for it; the earlier stage is reported again
	// afterwards.
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
	// Storage is the connection to the blobs, if the server does not have them itself; nil: it
	// does.
	Storage  grpc.ClientConnInterface
	Instance string          // REv2 instance name; may be empty
	Function digest.Function // default SHA-256; must be the one Inputs were scanned with
	Command  *repb.Command   // not changed; lists need not be sorted
	Platform *repb.Platform  // not changed; nil: the platform in Command, if any
	Inputs   *Inputs         // nil is an empty input root
	Timeout  time.Duration   // 0 means the server's default
	Priority int32           // REv2 ExecutionPolicy: lower runs earlier

	DoNotCache      bool // the result is neither cached nor taken from the cache
	SkipCacheLookup bool // execute although a result may be cached
	// CancelWithContext makes the server cancel the run when the context ends first, unless other
	// clients wait for the same run. Otherwise the server notices after some time that no client
	// waits.
	CancelWithContext bool

	// Metadata identifies the caller for the server's logs and fairness; nil is valid. It is not
	// changed: a missing tool, invocation or action is added.
	Metadata *repb.RequestMetadata
	// Progress may be nil. Its calls do not overlap; it must not block.
	Progress func(Event)
	// Stdout and Stderr receive the output of the running command, if the server offers it; nil: no
	// live output. It may be incomplete, see Live.Rest.
	Stdout, Stderr *Live
	Logger         *zap.Logger // may be nil
}

// An Outcome is the end of an action that the server accepted.
type Outcome struct {
	Result  *repb.ActionResult // may be nil when Status is not
	Cached  bool               // the result was in the cache
	Message string             // from the server, for the user; often empty
	// Status is the reason why the action did not complete, as a gRPC status error
	// (DeadlineExceeded: it timed out); nil if it completed, with any exit code.
	Status error
	Action digest.Digest

	Scan          time.Duration // Inputs.Took
	Upload        time.Duration // including the search for missing blobs
	UploadedBlobs int
	UploadedBytes int64
}

// Execute uploads the blobs of req that the server at conn lacks, and executes req. It waits until
// ctx ends. It resumes a broken stream, and uploads inputs again that the server lost between
// upload and execution.
//
// An error means that there is no outcome, and keeps the server's status (status.FromError). A
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

// statusError is why an action did not run to its end; nil if it did.
func statusError(response *repb.ExecuteResponse) error {
	if response.GetStatus() == nil {
		return nil
	}
	return status.ErrorProto(response.GetStatus())
}

// lacksBlobs reports whether err says that blobs of the action are missing from the storage, as the
// documentation of Execution.Execute in REv2 defines it.
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
