package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	// holds is how long a stand-in for bb_scheduler holds a call when there is no action, interval
	// when it wants the next call of a worker.
	holds, interval = time.Minute, 10 * time.Second
	// actionTimeout is the timeout of each action.
	actionTimeout = time.Hour
)

// A scheduler stands in for bb_scheduler: it gives an action to a worker of an equal platform, and a
// queue, which no configuration has declared, takes the size class of its first worker alone. It
// knows no service and no header of Forerunner's. As a gRPC server without options it closes
// connections that are pinged too often.
type scheduler struct {
	repb.UnimplementedExecutionServer
	repb.UnimplementedCapabilitiesServer
	remoteworker.UnimplementedOperationQueueServer
	address string
	storage grpc.ClientConnInterface

	mu      sync.Mutex
	queues  map[string]*queue // by platform
	running map[string]*task  // by worker
	made    int
}

// A queue is of one platform.
type queue struct {
	tasks chan *task
	class uint32
	known bool            // a worker has come, so that the class is set
	calls map[string]bool // the workers that have called
}

// A task is an action that is queued or runs.
type task struct {
	desired *remoteworker.DesiredState_Executing
	ended   chan *repb.ExecuteResponse
}

// startScheduler starts a stand-in for bb_scheduler. The storage may begin to answer later.
func startScheduler(f *programs.Test, storage string) *scheduler {
	f.Helper()
	s := &scheduler{queues: map[string]*queue{}, running: map[string]*task{}, storage: f.Dial(storage)}
	s.address = serve(f, "127.0.0.1:0", func(g *grpc.Server) {
		repb.RegisterExecutionServer(g, s)
		repb.RegisterCapabilitiesServer(g, s)
		remoteworker.RegisterOperationQueueServer(g, s)
	})
	return s
}

// queue returns the queue of a platform.
func (s *scheduler) queue(p *repb.Platform) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[p.String()]
	if q == nil {
		q = &queue{tasks: make(chan *task, 100), calls: map[string]bool{}}
		s.queues[p.String()] = q
	}
	return q
}

// workers returns how many workers of a platform have called.
func (s *scheduler) workers(p *repb.Platform) []string {
	q := s.queue(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(q.calls))
}

// GetCapabilities implements repb.CapabilitiesServer.
func (s *scheduler) GetCapabilities(context.Context, *repb.GetCapabilitiesRequest) (*repb.ServerCapabilities, error) {
	return &repb.ServerCapabilities{ExecutionCapabilities: &repb.ExecutionCapabilities{
		DigestFunction: repb.DigestFunction_SHA256, ExecEnabled: true,
	}}, nil
}

// Execute implements repb.ExecutionServer.
func (s *scheduler) Execute(r *repb.ExecuteRequest, stream repb.Execution_ExecuteServer) error {
	action, err := s.read(stream.Context(), r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.made++
	name := fmt.Sprint("operation-", s.made)
	s.mu.Unlock()
	if action.Timeout == nil {
		action.Timeout = durationpb.New(actionTimeout)
	}
	t := &task{ended: make(chan *repb.ExecuteResponse, 1), desired: &remoteworker.DesiredState_Executing{
		ActionDigest: r.GetActionDigest(), Action: action, QueuedTimestamp: timestamppb.Now(), DigestFunction: repb.DigestFunction_SHA256,
	}}
	if err := stream.Send(operation(name, repb.ExecutionStage_QUEUED, nil)); err != nil {
		return err
	}
	select {
	case s.queue(action.GetPlatform()).tasks <- t:
	default:
		return status.Error(codes.ResourceExhausted, "too many actions")
	}
	select {
	case response := <-t.ended:
		return stream.Send(operation(name, repb.ExecutionStage_COMPLETED, response))
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	}
}

// read returns an action from the storage.
func (s *scheduler) read(ctx context.Context, r *repb.ExecuteRequest) (*repb.Action, error) {
	d, err := digest.FromProto(digest.SHA256, r.GetActionDigest())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	b, err := casclient.New(s.storage, casclient.Options{}).Read(ctx, d)
	if err != nil {
		return nil, err
	}
	action := &repb.Action{}
	return action, proto.Unmarshal(b, action)
}

// operation returns the state that a client receives; response is nil before the end.
func operation(name string, stage repb.ExecutionStage_Value, response *repb.ExecuteResponse) *longrunningpb.Operation {
	metadata, _ := anypb.New(&repb.ExecuteOperationMetadata{Stage: stage}) // it has no texts
	op := &longrunningpb.Operation{Name: name, Metadata: metadata, Done: response != nil}
	if response != nil {
		packed, err := anypb.New(response)
		if err != nil {
			op.Result = &longrunningpb.Operation_Error{Error: status.Convert(err).Proto()}
			return op
		}
		op.Result = &longrunningpb.Operation_Response{Response: packed}
	}
	return op
}

// Synchronize implements remoteworker.OperationQueueServer.
func (s *scheduler) Synchronize(ctx context.Context, r *remoteworker.SynchronizeRequest) (*remoteworker.SynchronizeResponse, error) {
	q, worker := s.queue(r.GetPlatform()), fmt.Sprint(r.GetWorkerId())
	current, err := s.called(q, worker, r)
	if err != nil {
		return nil, err
	}
	next := timestamppb.New(time.Now().Add(interval))
	executing := r.GetCurrentState().GetExecuting()
	switch {
	case current == nil:
	case executing.GetCompleted() != nil:
		current.ended <- executing.GetCompleted()
		s.runs(worker, nil)
	case executing != nil: // it may go on
		return &remoteworker.SynchronizeResponse{NextSynchronizationAt: next}, nil
	default: // it has not got the last answer
		return give(current), nil
	}
	idle := &remoteworker.SynchronizeResponse{NextSynchronizationAt: next, DesiredState: &remoteworker.DesiredState{
		WorkerState: &remoteworker.DesiredState_Idle{Idle: &emptypb.Empty{}},
	}}
	if r.GetPreferBeingIdle() || executing != nil && current == nil {
		return idle, nil
	}
	select {
	case t := <-q.tasks:
		s.runs(worker, t)
		return give(t), nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-time.After(holds):
		return idle, nil
	}
}

// called takes note of a worker, unless it is not welcome, and returns the task that it has, nil for
// none.
func (s *scheduler) called(q *queue, worker string, r *remoteworker.SynchronizeRequest) (*task, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.known && q.class != r.GetSizeClass() {
		return nil, status.Error(codes.InvalidArgument, "a queue that was not declared cannot have multiple size classes")
	}
	q.class, q.known, q.calls[worker] = r.GetSizeClass(), true, true
	t, executing := s.running[worker], r.GetCurrentState().GetExecuting()
	if t != nil && executing != nil && !proto.Equal(executing.GetActionDigest(), t.desired.GetActionDigest()) {
		return nil, status.Error(codes.InvalidArgument, "the worker runs another action")
	}
	return t, nil
}

// runs assigns a task to a worker; nil: none.
func (s *scheduler) runs(worker string, t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[worker] = t
}

func give(t *task) *remoteworker.SynchronizeResponse {
	return &remoteworker.SynchronizeResponse{
		NextSynchronizationAt: timestamppb.New(time.Now().Add(interval)),
		DesiredState:          &remoteworker.DesiredState{WorkerState: &remoteworker.DesiredState_Executing_{Executing: t.desired}},
	}
}
