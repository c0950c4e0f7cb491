package scheduler

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/rpctest"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// A rawFarm is a Server that is called with bytes. No call waits: all have been given up before.
type rawFarm struct {
	t        *testing.T
	storage  *fakeStorage
	server   *Server
	services rpctest.Services
}

func newRawFarm(t *testing.T) *rawFarm {
	t.Helper()
	f := &rawFarm{t: t, storage: newFakeStorage()}
	o := ServerOptions{
		Config: oneCohort(), Storage: func(string, digest.Function) Storage { return f.storage },
		Sizes: must(sizeclass.NewAnalyzer(&sizeStore{records: map[record.Key][]byte{}}, sizeclass.Options{})),
	}
	o.Config.MaxCompleted, o.Config.MaxPerClient, o.Config.MaxAttempts = 10, 20, 2
	var err error
	if f.server, err = NewServer(o); err != nil {
		t.Fatal(err)
	}
	f.server.Register(&f.services)
	return f
}

// call makes a call. Its error must say whether the caller or the scheduler is at fault.
func (f *rawFarm) call(method string, request []byte, headers ...string) ([][]byte, codes.Code) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(f.t.Context(), metadata.Pairs(headers...)))
	cancel()
	answers, err := f.services.Call(ctx, method, request)
	code := status.Code(err)
	if errors.Is(err, rpctest.ErrNoMessage) {
		code = codes.InvalidArgument
	} else if code == codes.Internal || code == codes.Unknown {
		f.t.Fatalf("%s: %v", method, err)
	}
	if problem := f.server.engine.Check(); problem != "" {
		f.t.Fatalf("after %s: %s", method, problem)
	}
	return answers, code
}

const (
	executeMethod     = "/build.bazel.remote.execution.v2.Execution/Execute"
	synchronizeMethod = "/buildbarn.remoteworker.OperationQueue/Synchronize"
)

// someWorker is the request of a worker that has a state.
func someWorker(state *remoteworker.CurrentState) *remoteworker.SynchronizeRequest {
	return &remoteworker.SynchronizeRequest{
		WorkerId: map[string]string{"name": "w"}, Platform: platformX(), SizeClass: 1, CurrentState: state,
	}
}

// workerStates are all that a worker can say of an action.
func workerStates(action *repb.Digest) (list []*remoteworker.CurrentState) {
	type executing = remoteworker.CurrentState_Executing
	list = append(list, &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: nothing}})
	for _, x := range []*executing{
		{ExecutionState: &remoteworker.CurrentState_Executing_Started{Started: nothing}},
		{ExecutionState: &remoteworker.CurrentState_Executing_Running{Running: nothing}},
		{ExecutionState: &remoteworker.CurrentState_Executing_UploadingOutputs{UploadingOutputs: nothing}},
		{ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: &repb.ExecuteResponse{Result: &repb.ActionResult{}}}},
		{ExecutionState: &remoteworker.CurrentState_Executing_Completed{
			Completed: &repb.ExecuteResponse{Status: status.New(codes.Unavailable, "gone").Proto()},
		}},
	} {
		x.ActionDigest = action
		list = append(list, &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Executing_{Executing: x}})
	}
	return list
}

// FuzzCalls calls any two methods with any bytes, while an action waits or runs.
func FuzzCalls(f *testing.F) {
	var all rpctest.Services
	must(NewServer(ServerOptions{Storage: func(string, digest.Function) Storage { return nil }})).Register(&all)
	methods := all.Methods()
	action := newFakeStorage().action("a", onX)
	name := []string{"operations/x"}
	pattern := &admin.Pattern{Attributes: map[string]string{"name": "w*"}}
	for service, requests := range map[string]map[string]proto.Message{
		"build.bazel.remote.execution.v2.Execution": {
			"Execute": &repb.ExecuteRequest{ActionDigest: action, InstanceName: "a/b"}, "WaitExecution": &repb.WaitExecutionRequest{Name: name[0]},
		},
		"google.longrunning.Operations": {"CancelOperation": &longrunningpb.CancelOperationRequest{Name: name[0]}},
		"forerunner.admin.Scheduler": {
			"Drain": &admin.DrainRequest{Pattern: pattern}, "Undrain": &admin.UndrainRequest{Pattern: pattern},
			"ListWorkers":    &admin.ListWorkersRequest{Pattern: pattern, PageSize: 1},
			"ListQueues":     &admin.ListQueuesRequest{MaxBranches: -1},
			"ListOperations": &admin.ListOperationsRequest{PageSize: -1, PageToken: "x"},
			"KillOperations": &admin.KillOperationsRequest{Pattern: &admin.Pattern{Attributes: map[string]string{"name": "*"}}, Reason: "x"},
			"PutQuota":       &admin.PutQuotaRequest{Cohort: "farm", InstanceName: "a", Min: 1, Max: 2, Preempt: true},
			"GetSizes": &admin.GetSizesRequest{
				Mnemonic: "x", Action: &admin.GetSizesRequest_ReducedActionDigest{ReducedActionDigest: action},
			},
			"DeleteQuota": &admin.DeleteQuotaRequest{Cohort: "farm", InstanceName: "a"},
		},
		"forerunner.live.Outputs": {
			"Serve": &live.ServeRequest{Workers: []*live.Identity{{WorkerId: map[string]string{"name": "w"}}}},
			"Push":  &live.Chunk{Id: "x", Data: []byte("text")},
		},
	} {
		for method, request := range requests {
			i := slices.Index(methods, "/"+service+"/"+method)
			if i < 0 {
				f.Fatalf("there is no %s of %s", method, service)
			}
			b := must(proto.Marshal(request))
			f.Add(byte(i), b, byte(i), b)
			f.Add(byte(i), b, byte(slices.Index(methods, synchronizeMethod)), must(proto.Marshal(someWorker(workerStates(action)[0]))))
		}
	}
	for i := range methods {
		f.Add(byte(i), []byte{}, byte(i), []byte{})
	}
	f.Fuzz(func(t *testing.T, method1 byte, request1 []byte, method2 byte, request2 []byte) {
		f := newRawFarm(t)
		f.call(executeMethod, must(proto.Marshal(&repb.ExecuteRequest{ActionDigest: f.storage.action("a", onX)})))
		f.call(methods[int(method1)%len(methods)], request1)
		f.call(methods[int(method2)%len(methods)], request2)
	})
}

func onX(a *repb.Action, _ *repb.Command) { a.Platform = platformX() }

// FuzzSynchronize has a worker that has an action say anything, twice, and then go on as it should.
func FuzzSynchronize(f *testing.F) {
	action := newFakeStorage().action("a", onX)
	states := workerStates(action)
	for i, state := range states {
		f.Add(must(proto.Marshal(someWorker(state))), must(proto.Marshal(someWorker(states[(i+3)%len(states)]))))
		other := someWorker(state)
		other.Platform, other.SizeClass, other.PreferBeingIdle, other.InstanceNamePrefix = nil, 4, true, "a"
		f.Add(must(proto.Marshal(other)), must(proto.Marshal(someWorker(state))))
	}
	idle := must(proto.Marshal(someWorker(states[0])))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		f := newRawFarm(t)
		action := f.storage.action("a", onX)
		f.call(executeMethod, must(proto.Marshal(&repb.ExecuteRequest{ActionDigest: action})))
		f.desired(idle)
		f.desired(first)
		f.desired(second)
		for _, state := range workerStates(action) {
			f.desired(must(proto.Marshal(someWorker(state))))
		}
	})
}

// desired makes a call of a worker. Each action in a response has a timeout, and each response has
// the time of the next call.
func (f *rawFarm) desired(request []byte) {
	f.t.Helper()
	answers, code := f.call(synchronizeMethod, request)
	if code != codes.OK {
		return
	}
	var m remoteworker.SynchronizeResponse
	if err := proto.Unmarshal(answers[0], &m); err != nil {
		f.t.Fatal(err)
	}
	x := m.GetDesiredState().GetExecuting()
	if m.GetNextSynchronizationAt() == nil || x != nil && x.GetAction().GetTimeout().AsDuration() <= 0 {
		f.t.Fatalf("the answer is %v", &m)
	}
}

// FuzzExecute executes arbitrary Actions, Commands and RequestMetadata. An accepted one must be
// offered to a worker with the right timeout.
func FuzzExecute(f *testing.F) {
	//lint:ignore SA1019 clients before API 2.2 send it
	command := must(proto.Marshal(&repb.Command{Arguments: []string{"/bin/true"}, Platform: platformX()}))
	metadata := must(proto.Marshal(&repb.RequestMetadata{ToolInvocationId: "i", ActionMnemonic: "Cc", ToolDetails: &repb.ToolDetails{ToolName: "bazel"}}))
	for _, a := range []*repb.Action{
		{InputRootDigest: digest.SHA256.Empty().Proto()},
		{InputRootDigest: digest.SHA256.Empty().Proto(), Timeout: durationpb.New(time.Second), Platform: platformX(), DoNotCache: true, Salt: []byte("x")},
		{InputRootDigest: digest.SHA256.Empty().Proto(), Timeout: &durationpb.Duration{Seconds: math.MaxInt64}},
		{InputRootDigest: &repb.Digest{Hash: "short"}, Timeout: &durationpb.Duration{Seconds: -1}},
		{CommandDigest: &repb.Digest{Hash: someHash, SizeBytes: 3}, InputRootDigest: someDigest},
	} {
		f.Add(must(proto.Marshal(a)), command, metadata, "", int32(0))
		f.Add(must(proto.Marshal(a)), command[:len(command)/2], metadata[:5], "a/blobs", int32(math.MinInt32))
	}
	f.Fuzz(func(t *testing.T, action, command, who []byte, instance string, priority int32) {
		f := newRawFarm(t)
		a := &repb.Action{}
		if proto.Unmarshal(action, a) == nil && a.GetCommandDigest() == nil {
			a.CommandDigest = f.storage.putBytes(digest.SHA256, command)
			action = must(proto.Marshal(a))
		}
		request, err := proto.Marshal(&repb.ExecuteRequest{
			InstanceName: instance, ActionDigest: f.storage.putBytes(digest.SHA256, action), ExecutionPolicy: &repb.ExecutionPolicy{Priority: priority},
		})
		if err != nil {
			return // it cannot be sent
		}
		_, code := f.call(executeMethod, request, names.RequestMetadataHeader, string(who))
		switch code {
		case codes.OK, codes.Canceled, codes.InvalidArgument: // an answer, one that would come, and a refusal
		default:
			t.Fatalf("code %s", code)
		}
		if n := f.server.Counts().Unmatched; n > 0 && code != codes.Canceled {
			t.Fatalf("%d actions wait after code %s", n, code)
		}
		w := someWorker(workerStates(nil)[0])
		w.Platform = a.GetPlatform()
		f.desired(must(proto.Marshal(w)))
	})
}
