package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/names"
)

// The limits for broken streams.
const (
	// retryFor is how long a server may be unavailable before the client gives up. The time begins
	// when a stream breaks that has delivered a message.
	retryFor = 2 * time.Minute
	// firstPause is the first pause between attempts. It doubles with each failed attempt, up to
	// lastPause.
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// maxForgotten limits how often a server may forget the operation. Each time, the action starts
	// again.
	maxForgotten = 5
	// cancelTimeout limits the cancel request at the end.
	cancelTimeout = 5 * time.Second
)

// A watch follows one action to its response, over as many streams as necessary.
type watch struct {
	*execution
	name       string    // of the operation; "" before it is known
	lastAnswer time.Time // when the server last answered
	pause      time.Duration
	forgotten  int
}

// run executes the uploaded action and waits for the response.
func (x *execution) run(ctx context.Context) (*repb.ExecuteResponse, error) {
	w := &watch{execution: x, lastAnswer: time.Now(), pause: firstPause}
	defer func() {
		if ctx.Err() != nil && x.req.CancelWithContext {
			w.cancel(ctx)
		}
	}()
	for {
		op, err := w.follow(ctx)
		if err == nil {
			return response(op)
		}
		if ctx.Err() != nil || !w.mayRetry(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(w.pause):
		}
		w.pause = min(2*w.pause, lastPause)
	}
}

// cancel makes the server cancel the operation, if there is one. It ignores errors: either the
// operation has ended, or the server does not support cancellation and will notice that no client
// waits.
func (w *watch) cancel(ctx context.Context) {
	if w.name == "" {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer stop()
	_, _ = w.running.CancelOperation(ctx, &longrunningpb.CancelOperationRequest{Name: w.name})
}

// mayRetry reports whether another stream may succeed after one that ended with err.
func (w *watch) mayRetry(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable:
		return time.Since(w.lastAnswer) < retryFor
	case codes.NotFound:
		// REv2, WaitExecution: the operation no longer exists, so call Execute again.
		w.forgotten++
		known := w.name != ""
		w.name = ""
		return known && w.forgotten <= maxForgotten
	}
	return false
}

// follow reads one stream up to the end of the operation, which may be an error. If the stream ends
// earlier, the error is Unavailable.
func (w *watch) follow(ctx context.Context) (*longrunningpb.Operation, error) {
	var live views
	defer live.Wait()
	var attention attention
	defer attention.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	attention.attend(ctx, w, cancel)
	op, err := w.read(ctx, &attention, &live)
	if err != nil && errors.Is(context.Cause(ctx), errHangs) {
		w.stage(Silent)
		return nil, errHangs
	}
	return op, err
}

// read opens a stream and reads it.
func (w *watch) read(ctx context.Context, attention *attention, live *views) (*longrunningpb.Operation, error) {
	stream, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	for began := false; ; began = true {
		op, err := stream.Recv()
		if err != nil && began {
			w.lastAnswer = time.Now() // the stream may have been silent for hours
		}
		if errors.Is(err, io.EOF) {
			return nil, status.Error(codes.Unavailable, "the stream ended before the action did")
		}
		if err != nil {
			return nil, err
		}
		attention.hear()
		if !began {
			w.learnPage(stream)
		}
		w.name, w.lastAnswer, w.pause = op.GetName(), time.Now(), firstPause
		if op.GetDone() {
			return op, nil
		}
		live.begin(ctx, w.execution, w.report(op))
	}
}

// open starts the action, or resumes the operation if there is one.
func (w *watch) open(ctx context.Context) (grpc.ServerStreamingClient[longrunningpb.Operation], error) {
	if w.name != "" {
		return w.server.WaitExecution(ctx, &repb.WaitExecutionRequest{Name: w.name})
	}
	r := &repb.ExecuteRequest{
		InstanceName:    w.req.Instance,
		SkipCacheLookup: w.req.SkipCacheLookup,
		ActionDigest:    w.action.Proto(),
		DigestFunction:  w.req.Function.Proto(),
		InlineStdout:    true,
		InlineStderr:    true,
	}
	if w.req.Priority != 0 {
		r.ExecutionPolicy = &repb.ExecutionPolicy{Priority: w.req.Priority}
	}
	return w.server.Execute(metadata.AppendToOutgoingContext(ctx, names.PageHeader, "1"), r)
}

// learnPage takes the address of the page from an answer, which has begun.
func (w *watch) learnPage(stream grpc.ServerStreamingClient[longrunningpb.Operation]) {
	header, err := stream.Header()
	if err != nil {
		return
	}
	if page := header.Get(names.PageHeader); len(page) == 1 {
		w.outcome.Page = page[0]
	}
}

// report reports the stage of a running operation and returns its metadata. It ignores metadata
// that it cannot decode.
func (w *watch) report(op *longrunningpb.Operation) *repb.ExecuteOperationMetadata {
	m := &repb.ExecuteOperationMetadata{}
	if op.GetMetadata() == nil || op.GetMetadata().UnmarshalTo(m) != nil {
		return nil
	}
	switch m.GetStage() {
	case repb.ExecutionStage_CACHE_CHECK:
		w.stage(CacheCheck)
	case repb.ExecutionStage_QUEUED:
		w.stage(Queued)
	case repb.ExecutionStage_EXECUTING:
		w.stage(Executing)
	}
	return m
}

// response returns the response of a completed operation.
func response(op *longrunningpb.Operation) (*repb.ExecuteResponse, error) {
	if err := status.ErrorProto(op.GetError()); err != nil {
		return nil, err
	}
	m := &repb.ExecuteResponse{}
	if err := op.GetResponse().UnmarshalTo(m); err != nil {
		return nil, fmt.Errorf("operation %s: %w", op.GetName(), err)
	}
	if m.GetResult() == nil && statusError(m) == nil {
		return nil, fmt.Errorf("operation %s has ended with neither a result nor an error", op.GetName())
	}
	return m, nil
}
