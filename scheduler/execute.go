package scheduler

import (
	"context"
	"errors"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/learning"
	"github.com/forerunner-build/forerunner/scheduler/operation"
	"github.com/forerunner-build/forerunner/scheduler/pastruns"
)

// executionService is REv2's Execution. Errors of the request itself are gRPC errors; those of the
// action are in ExecuteResponse.status.
type executionService struct {
	operations *operations
	requests   *operation.Requests
	learning   *learning.Learning
	endings    *endings
	tracing    tracing
	pastRuns   *pastruns.Finder // nil: no runs are reused
	log        *zap.Logger
}

// Execute answers from the action cache, or submits the action and follows it.
func (s *executionService) Execute(req *repb.ExecuteRequest, stream repb.Execution_ExecuteServer) error {
	op, box, err := s.begin(req, stream)
	if box == nil || err != nil {
		return err
	}
	return s.operations.follow(stream, op.Name, box, s.inlining(req, op))
}

// begin makes a request an operation, and submits it: without a mailbox it has been answered.
func (s *executionService) begin(req *repb.ExecuteRequest, stream operationStream) (*request.Operation, *engine.Mailbox, error) {
	if s.operations.IsStopped() {
		return nil, nil, engine.ErrStopped()
	}
	ctx := stream.Context()
	op, err := s.requests.New(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	s.tracing.begin(ctx, op)
	s.operations.tellPage(ctx, op)
	box, err := s.submit(ctx, req, op, stream)
	if err != nil {
		refuseTrace(op, err)
	}
	return op, box, err
}

// inlining returns the client's wish for inline contents.
func (s *executionService) inlining(req *repb.ExecuteRequest, op *request.Operation) inlining {
	return inlining{s.requests.StorageOf(op), op.Digest.Function(), req.GetInlineOutputFiles()}
}

// submit has an operation queued, for the caller to follow, or answers it and returns nil.
func (s *executionService) submit(
	ctx context.Context, req *repb.ExecuteRequest, op *request.Operation, stream operationStream,
) (*engine.Mailbox, error) {
	storage := s.requests.StorageOf(op)
	if !req.GetSkipCacheLookup() {
		if result := s.cached(ctx, storage, op); result != nil {
			found := s.inlining(req, op).into(ctx, &repb.ExecuteResponse{Result: result, CachedResult: true})
			return nil, s.sendDone(stream, op, found)
		}
	}
	if err := s.requests.Load(ctx, storage, op); err != nil {
		if st := status.Convert(err); st.Code() == codes.FailedPrecondition {
			return nil, s.sendDone(stream, op, &repb.ExecuteResponse{Status: st.Proto()})
		}
		return nil, err
	}
	if err := operation.Charge(ctx, op); err != nil {
		return nil, err
	}
	op.Private = op.Action.GetDoNotCache() || req.GetSkipCacheLookup()
	if req.GetSkipCacheLookup() {
		op.Auxiliary = runAnew()
	}
	if response := s.reused(ctx, op); response != nil {
		return nil, s.sendDone(stream, op, s.inlining(req, op).into(ctx, response))
	}
	s.learning.Choose(ctx, storage, op)
	return s.operations.submit(op)
}

// WaitExecution follows an operation that runs, or that has ended recently.
func (s *executionService) WaitExecution(
	req *repb.WaitExecutionRequest, stream repb.Execution_WaitExecutionServer,
) error {
	if s.operations.IsStopped() {
		return engine.ErrStopped()
	}
	box, err := s.operations.attach(stream.Context(), req.GetName())
	if err != nil {
		return err
	}
	return s.operations.follow(stream, req.GetName(), box, inlining{})
}

// sendDone ends an operation that never got to the state.
func (s *executionService) sendDone(stream operationStream, op *request.Operation, resp *repb.ExecuteResponse) error {
	now := time.Now()
	st := &event.Status{
		Operation: op, Stage: repb.ExecutionStage_COMPLETED,
		Queued: now, Ended: now, Response: resp,
	}
	s.endings.finished(st)
	m, err := operation.Longrunning(st)
	if err != nil {
		return err
	}
	return stream.Send(m)
}

// cached returns the action's result from the action cache, or nil. A cache
// that does not work costs time, not the action.
func (s *executionService) cached(ctx context.Context, storage operation.Storage, op *request.Operation) *repb.ActionResult {
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

// reused returns the response of an earlier run that read nothing that has changed since, and that
// a worker which may get the operation would reuse; nil: there is none, or the command must run.
func (s *executionService) reused(ctx context.Context, op *request.Operation) *repb.ExecuteResponse {
	if s.pastRuns == nil || op.Private {
		return nil
	}
	a := pastruns.Action{Instance: op.Instance, Digest: op.Digest, Message: op.Action, Auxiliary: operation.Auxiliary(op)}
	s.operations.Look(func(v *core.View) { a.Circumstances = v.Circumstances(op, pastruns.MaxCircumstances) })
	run, ok := s.pastRuns.Find(ctx, a)
	if !ok {
		return nil
	}
	operation.AddExtras(op).Reused = run.Action.String()
	return &repb.ExecuteResponse{Result: run.Result, CachedResult: true, Message: run.Message()}
}

// runAnew tells a worker that the client wants its command to run, without reuse. The result must
// not be changed.
var runAnew = sync.OnceValue(func() []*anypb.Any {
	packed, err := anypb.New(&actionstats.Request{SkipCacheLookup: true})
	if err != nil {
		panic("scheduler: a message of two bytes cannot be packed: " + err.Error())
	}
	return []*anypb.Any{packed}
})
