package scheduler

import (
	"context"
	"errors"
	"strings"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

// queueFullRetry is when a client may try again after RESOURCE_EXHAUSTED.
const queueFullRetry = 10 * time.Second

// executionService is REv2's Execution. Errors of the request itself are gRPC
// errors; what goes wrong with the action is in ExecuteResponse.status.
type executionService struct{ *Server }

// operationStream is what Execute and WaitExecution send to.
type operationStream interface {
	Send(*longrunningpb.Operation) error
	Context() context.Context
}

// Execute answers from the action cache, or submits the action and follows it.
func (s executionService) Execute(req *repb.ExecuteRequest, stream repb.Execution_ExecuteServer) error {
	if s.isStopped() {
		return errStopped()
	}
	ctx := stream.Context()
	op, err := s.newOperation(ctx, req)
	if err != nil {
		return err
	}
	s.beginTrace(ctx, op)
	box, err := s.submit(ctx, req, op, stream)
	if err != nil {
		refuseTrace(op, err)
	}
	if box == nil || err != nil {
		return err
	}
	return s.follow(stream, op.Name, box)
}

// submit has an operation queued, for the caller to follow, or answers it and returns nil.
func (s executionService) submit(
	ctx context.Context, req *repb.ExecuteRequest, op *core.Operation, stream repb.Execution_ExecuteServer,
) (_ *mailbox, err error) {
	storage := s.options.Storage(op.Instance, op.Digest.Function())
	if !req.GetSkipCacheLookup() {
		if result := s.cached(ctx, storage, op); result != nil {
			return nil, s.sendDone(stream, op, &repb.ExecuteResponse{Result: result, CachedResult: true})
		}
	}
	if err := s.load(ctx, storage, op); err != nil {
		if st := status.Convert(err); st.Code() == codes.FailedPrecondition {
			return nil, s.sendDone(stream, op, &repb.ExecuteResponse{Status: st.Proto()})
		}
		return nil, err
	}
	op.Private = op.Action.GetDoNotCache() || req.GetSkipCacheLookup()
	if req.GetSkipCacheLookup() {
		op.Auxiliary = runAnew()
	}

	s.choose(ctx, storage, op)
	box := newMailbox()
	if !s.accept(func(now time.Time) (out core.Out) {
		out = s.feedLocked(now, core.Submit{Operation: op})
		if err = out.Err; err == nil {
			s.followLocked(op.Name, box)
		}
		return out
	}) {
		return nil, errStopped()
	}
	if errors.Is(err, core.ErrQueueFull) || errors.Is(err, core.ErrClientFull) {
		return nil, retryLater(codes.ResourceExhausted, err, queueFullRetry)
	} else if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return box, nil
}

// WaitExecution follows an operation that runs, or has ended not long ago.
func (s executionService) WaitExecution(
	req *repb.WaitExecutionRequest, stream repb.Execution_WaitExecutionServer,
) error {
	if s.isStopped() {
		return errStopped()
	}
	box := newMailbox()
	var st core.Status
	var err error
	if !s.accept(func(now time.Time) (out core.Out) {
		if _, known := s.operationLocked(stream.Context(), req.GetName(), auth.Observe); !known {
			err = errUnknownOperation(req.GetName())
			return s.feedLocked(now, core.Tick{})
		}
		st, out, err = s.attachLocked(now, req.GetName(), box)
		return out
	}) {
		return errStopped()
	}
	if err != nil {
		return err
	}
	box.put(&st)
	return s.follow(stream, req.GetName(), box)
}

func errUnknownOperation(name string) error {
	return status.Errorf(codes.NotFound, "operation %q is not known, or no longer", name)
}

// follow sends the states of an operation until it is done. The caller has
// submitted or attached to it, which follow undoes.
func (s *Server) follow(stream operationStream, name string, box *mailbox) error {
	defer s.step(func(now time.Time) core.Out {
		s.unfollowLocked(name, box)
		return s.feedLocked(now, core.Detach{Name: name})
	})
	for {
		select {
		case <-box.full:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
		st, open := box.take()
		switch {
		case st == nil && open:
			continue
		case st == nil:
			return errStopped()
		}
		if st.Stage == repb.ExecutionStage_UNKNOWN {
			return errUnknownOperation(name)
		}
		m, err := longrunning(s.withPage(st))
		if err != nil {
			return err
		}
		if err := stream.Send(m); err != nil || st.Done() {
			return err
		}
	}
}

// withPage returns st, with the link to its page in the message of a failure.
func (s *Server) withPage(st *core.Status) *core.Status {
	failed := st.Response.GetStatus().GetCode() != 0 || st.Response.GetResult().GetExitCode() != 0
	if !st.Done() || !failed || s.options.Pages == "" {
		return st
	}
	linked, r := *st, st.Response // others have them too
	linked.Response = &repb.ExecuteResponse{
		Result: r.GetResult(), CachedResult: r.GetCachedResult(), Status: r.GetStatus(), ServerLogs: r.GetServerLogs(),
		Message: strings.TrimSpace(r.GetMessage() + "\nSee " + s.options.Pages + st.Name),
	}
	return &linked
}

// sendDone ends an operation that never got to the state.
func (s *Server) sendDone(stream operationStream, op *core.Operation, resp *repb.ExecuteResponse) error {
	now := time.Now()
	st := &core.Status{
		Operation: op, Stage: repb.ExecutionStage_COMPLETED,
		Queued: now, Ended: now, Response: resp,
	}
	s.finished(st)
	m, err := longrunning(st)
	if err != nil {
		return err
	}
	return stream.Send(m)
}

// cached returns the action's result from the action cache, or nil. A cache
// that does not work costs time, not the action.
func (s *Server) cached(ctx context.Context, storage Storage, op *core.Operation) *repb.ActionResult {
	result, err := storage.GetActionResult(ctx, op.Digest)
	switch {
	case err == nil && result.GetExitCode() != 0:
		return nil // storage elsewhere may keep failures
	case err == nil:
		return result
	}
	if !errors.Is(err, digest.ErrNotFound) && status.Code(err) != codes.NotFound && ctx.Err() == nil {
		s.log.Warn("action cache does not answer; the action runs",
			zap.String("action", op.Digest.String()), zap.Error(err))
	}
	return nil
}

// retryLater returns a status that asks the client to come back after a while.
func retryLater(code codes.Code, err error, after time.Duration) error {
	st, detailErr := status.New(code, err.Error()).WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if detailErr != nil {
		return status.Error(code, err.Error())
	}
	return st.Err()
}

// missing returns FAILED_PRECONDITION that tells the client which blob to
// upload again (REv2, Execution.Execute).
func missing(what string, d digest.Digest) error {
	st := status.Newf(codes.FailedPrecondition, "%s %s is not in the storage", what, d)
	detailed, err := st.WithDetails(&errdetails.PreconditionFailure{
		Violations: []*errdetails.PreconditionFailure_Violation{{Type: "MISSING", Subject: d.BlobName()}},
	})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
