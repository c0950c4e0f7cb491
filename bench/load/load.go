package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// TakenCommand is how large a Command the workers take with an action, as the program's do.
const TakenCommand = "65536"

// Clients is the number of clients that call Execute concurrently.
const Clients = 1000

// A Load has the actions of simulated clients and workers, and their times.
type Load struct {
	Actions []Action
	index   map[string]int // of actions, by hash
	// asked has the time when a client called Execute for an action, began the time when a worker
	// got it, both in nanoseconds since start.
	asked, began []atomic.Int64
	start        time.Time
	platform     *repb.Platform
	// SkipLookup makes clients set skip_cache_lookup.
	SkipLookup bool
}

// An Action is an action with the request metadata of its client.
type Action struct {
	action, command []byte
	Digest          digest.Digest
	commandDigest   digest.Digest
	Who             string // encoded RequestMetadata
}

// New makes actions with one command each, as in a build, and groups them into invocations.
func New(actions, perInvocation int) (*Load, error) {
	l := &Load{
		Actions: make([]Action, actions), index: make(map[string]int, actions),
		asked: make([]atomic.Int64, actions), began: make([]atomic.Int64, actions),
		start:    time.Now(),
		platform: client.Properties{"OSFamily=linux", "container-image=docker://gcr.io/cloud-builders/bazel"}.Proto(),
	}
	for i := range l.Actions {
		a, err := l.newAction(i, i/perInvocation)
		if err != nil {
			return nil, err
		}
		l.Actions[i] = a
		l.index[a.Digest.Proto().GetHash()] = i
	}
	return l, nil
}

func (l *Load) newAction(i, invocation int) (a Action, err error) {
	source := fmt.Sprintf("lib/package_%d/source_%d.cc", i/20, i)
	if a.command, err = proto.Marshal(&repb.Command{
		Arguments:   []string{"/usr/bin/g++", "-O2", "-c", source, "-o", "out/" + source + ".o"},
		OutputPaths: []string{"out/" + source + ".o"},
	}); err != nil {
		return a, err
	}
	a.commandDigest = digest.Of(digest.SHA256, a.command)
	if a.action, err = proto.Marshal(&repb.Action{
		CommandDigest: a.commandDigest.Proto(), InputRootDigest: digest.SHA256.Empty().Proto(), Platform: l.platform,
	}); err != nil {
		return a, err
	}
	a.Digest = digest.Of(digest.SHA256, a.action)
	invocationID := fmt.Sprintf("8d5ac1f4-2a0f-4e73-9d3e-%012d", invocation)
	who, err := proto.Marshal(&repb.RequestMetadata{
		ToolDetails:      &repb.ToolDetails{ToolName: "bazel", ToolVersion: "8.0.0"},
		ActionId:         a.Digest.Proto().GetHash(),
		ToolInvocationId: invocationID, CorrelatedInvocationsId: "5f0a6b1e-7c2d-4b0a-8a59-000000000000",
		ActionMnemonic: "CppCompile", TargetId: "//" + source,
		ConfigurationId: "2a3f5d0c8b1e4a77b6c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5",
	})
	a.Who = string(who)
	return a, err
}

// Upload uploads all actions to a storage.
func (l *Load) Upload(ctx context.Context, conn *grpc.ClientConn) error {
	blobs := make([]casclient.Blob, 0, 2*len(l.Actions))
	for _, a := range l.Actions {
		blobs = append(blobs, casclient.BytesBlob(a.Digest, a.action), casclient.BytesBlob(a.commandDigest, a.command))
	}
	return casclient.New(conn, casclient.Options{NoCompression: true}).Upload(ctx, blobs, nil)
}

// Connect opens enough connections for that many streams.
func Connect(address string, streams, perConnection int) (conns []*grpc.ClientConn, closeAll func() error, err error) {
	closeAll = func() error {
		var err error
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
		return err
	}
	for range (streams + perConnection - 1) / perConnection {
		c, err := dial.Dial(address)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		conns = append(conns, c)
	}
	return conns, closeAll, nil
}

// execute requests action i and returns the stream of its states.
func (l *Load) execute(ctx context.Context, conn *grpc.ClientConn, i int) (repb.Execution_ExecuteClient, error) {
	a := &l.Actions[i]
	l.asked[i].Store(int64(time.Since(l.start)))
	return repb.NewExecutionClient(conn).Execute(
		metadata.AppendToOutgoingContext(ctx, names.RequestMetadataHeader, a.Who),
		&repb.ExecuteRequest{ActionDigest: a.Digest.Proto(), SkipCacheLookup: l.SkipLookup})
}

// await reads a stream to its end. It returns an error unless the action succeeded.
func await(stream repb.Execution_ExecuteClient) error {
	_, err := AwaitAnswer(stream)
	return err
}

// AwaitAnswer reads a stream to its end and returns the response. It returns an error unless the
// action succeeded.
func AwaitAnswer(stream repb.Execution_ExecuteClient) (*repb.ExecuteResponse, error) {
	for {
		op, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if !op.GetDone() {
			continue
		}
		answer, err := AnswerOf(op)
		if err != nil {
			return nil, err
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("after the end: %w", err)
		}
		return answer, nil
	}
}

// AnswerOf returns the response of a completed operation. It returns an error unless the action
// succeeded.
func AnswerOf(op *longrunningpb.Operation) (*repb.ExecuteResponse, error) {
	answer := &repb.ExecuteResponse{}
	if err := op.GetResponse().UnmarshalTo(answer); err != nil {
		return nil, err
	}
	if answer.GetStatus().GetCode() != 0 || answer.GetResult().GetExitCode() != 0 {
		return nil, fmt.Errorf("the action failed: %v", answer)
	}
	return answer, nil
}

// Run has clients execute the actions from..to, each client one at a time, and returns how long
// that took.
func (l *Load) Run(ctx context.Context, conns []*grpc.ClientConn, from, to int) (time.Duration, error) {
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for c := range Clients {
		g.Go(func() error {
			for i := from + c; i < to; i += Clients {
				stream, err := l.execute(ctx, conns[c%len(conns)], i)
				if err == nil {
					err = await(stream)
				}
				if err != nil {
					return fmt.Errorf("execute action %d: %w", i, err)
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return time.Since(began), err
}

// Queue requests the actions from..to and returns when all are queued. Their streams stay open
// until ctx ends.
func (l *Load) Queue(ctx context.Context, conns []*grpc.ClientConn, from, to int) error {
	var g errgroup.Group
	g.SetLimit(Clients)
	for i := from; i < to; i++ {
		g.Go(func() error {
			stream, err := l.execute(ctx, conns[i%len(conns)], i)
			if err == nil {
				_, err = stream.Recv()
			}
			if err != nil {
				return fmt.Errorf("queue action %d: %w", i, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Work runs a worker whose actions take no time, until ctx ends.
func (l *Load) Work(ctx context.Context, conn *grpc.ClientConn, number int) error {
	queue := remoteworker.NewOperationQueueClient(conn)
	req := l.Worker(number)
	idle := req.CurrentState
	ctx = metadata.AppendToOutgoingContext(ctx, names.CommandHeader, TakenCommand)
	for {
		resp, err := queue.Synchronize(ctx, req)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("worker %d: %w", number, err)
		}
		req.CurrentState = idle
		if todo := resp.GetDesiredState().GetExecuting(); todo != nil {
			l.began[l.index[todo.GetActionDigest().GetHash()]].Store(int64(time.Since(l.start)))
			req.CurrentState = Executing(&remoteworker.CurrentState_Executing{
				ActionDigest:   todo.GetActionDigest(),
				ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: Completed(todo)},
			})
		}
	}
}

// Hang runs a worker that never completes its first action, until ctx ends.
func (l *Load) Hang(ctx context.Context, conn *grpc.ClientConn) error {
	queue := remoteworker.NewOperationQueueClient(conn)
	req := l.Worker(0)
	for {
		resp, err := queue.Synchronize(ctx, req)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("worker: %w", err)
		}
		if todo := resp.GetDesiredState().GetExecuting(); todo != nil {
			req.CurrentState = Executing(&remoteworker.CurrentState_Executing{
				ActionDigest:   todo.GetActionDigest(),
				ExecutionState: &remoteworker.CurrentState_Executing_Running{Running: &emptypb.Empty{}},
			})
		}
		select {
		case <-time.After(time.Until(resp.GetNextSynchronizationAt().AsTime())):
		case <-ctx.Done():
		}
	}
}

// Worker returns the request of an idle worker.
func (l *Load) Worker(number int) *remoteworker.SynchronizeRequest {
	return &remoteworker.SynchronizeRequest{
		WorkerId: map[string]string{"host": "worker-" + strconv.Itoa(number), "slot": "0"},
		Platform: l.platform, SizeClass: 1,
		CurrentState: &remoteworker.CurrentState{
			WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}},
		},
	}
}

// Executing returns the state of a worker that runs an action.
func Executing(x *remoteworker.CurrentState_Executing) *remoteworker.CurrentState {
	return &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Executing_{Executing: x}}
}

// Completed returns a successful response with one output, completed now. As those of workers it
// lacks the Command that came with the action.
func Completed(todo *remoteworker.DesiredState_Executing) *repb.ExecuteResponse {
	now, auxiliary := timestamppb.Now(), todo.GetAuxiliaryMetadata()
	if slices.ContainsFunc(auxiliary, isCommand) {
		auxiliary = slices.DeleteFunc(slices.Clone(auxiliary), isCommand)
	}
	return &repb.ExecuteResponse{Result: &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{{Path: "out/a.o", Digest: todo.GetActionDigest()}},
		ExecutionMetadata: &repb.ExecutedActionMetadata{
			Worker: "worker", QueuedTimestamp: todo.GetQueuedTimestamp(),
			WorkerStartTimestamp: now, InputFetchStartTimestamp: now, InputFetchCompletedTimestamp: now,
			ExecutionStartTimestamp: now, ExecutionCompletedTimestamp: now,
			OutputUploadStartTimestamp: now, OutputUploadCompletedTimestamp: now, WorkerCompletedTimestamp: now,
			AuxiliaryMetadata: auxiliary,
		},
	}}
}

func isCommand(m *anypb.Any) bool { return m.GetTypeUrl() == names.CommandType }

// Latencies returns how long the actions from..to waited for a worker, in milliseconds.
func (l *Load) Latencies(from, to int) []float64 {
	ms := make([]float64, 0, to-from)
	for i := from; i < to; i++ {
		ms = append(ms, float64(l.began[i].Load()-l.asked[i].Load())/1e6)
	}
	return ms
}
