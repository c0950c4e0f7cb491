package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
)

// A script is an Execution server. It answers each stream with its next step, whichever method
// opened the stream.
type script struct {
	repb.UnimplementedExecutionServer
	steps []step

	mu       sync.Mutex
	calls    []string // "execute", or "wait" and the name
	requests []*repb.ExecuteRequest
	who      []*repb.RequestMetadata
}

// A step sends operations and ends the stream, with an error if it returns one.
type step func(send func(*longrunningpb.Operation)) error

type operations = grpc.ServerStreamingServer[longrunningpb.Operation]

func (s *script) Execute(r *repb.ExecuteRequest, stream operations) error {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	return s.next("execute", stream)
}

func (s *script) WaitExecution(r *repb.WaitExecutionRequest, stream operations) error {
	return s.next("wait "+r.GetName(), stream)
}

func (s *script) next(call string, stream operations) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	who := &repb.RequestMetadata{}
	for _, v := range md.Get(names.RequestMetadataHeader) {
		if err := proto.Unmarshal([]byte(v), who); err != nil {
			return err
		}
	}
	s.mu.Lock()
	i := len(s.calls)
	s.calls, s.who = append(s.calls, call), append(s.who, who)
	s.mu.Unlock()
	if i >= len(s.steps) {
		return status.Error(codes.Internal, "the script is at its end")
	}
	return s.steps[i](func(op *longrunningpb.Operation) { _ = stream.Send(op) })
}

// at returns an operation that is in a stage.
func at(name string, stage repb.ExecutionStage_Value) *longrunningpb.Operation {
	m, err := anypb.New(&repb.ExecuteOperationMetadata{Stage: stage})
	if err != nil {
		panic(err)
	}
	return &longrunningpb.Operation{Name: name, Metadata: m}
}

// finish returns a step that completes the operation with r.
func finish(r *repb.ExecuteResponse) step {
	return func(send func(*longrunningpb.Operation)) error {
		m, err := anypb.New(r)
		if err != nil {
			return err
		}
		send(&longrunningpb.Operation{
			Name: "op", Done: true, Result: &longrunningpb.Operation_Response{Response: m},
		})
		return nil
	}
}

// breakOff returns a step that ends with err after one stage.
func breakOff(name string, stage repb.ExecutionStage_Value, err error) step {
	return func(send func(*longrunningpb.Operation)) error {
		send(at(name, stage))
		return err
	}
}

// missing returns the status FAILED_PRECONDITION that REv2 prescribes for a missing input.
func missing(t *testing.T) *status.Status {
	t.Helper()
	s, err := status.New(codes.FailedPrecondition, "an input is gone").WithDetails(
		&errdetails.PreconditionFailure{Violations: []*errdetails.PreconditionFailure_Violation{
			{Type: "MISSING", Subject: "blobs/x/1"},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// demand returns a request with inputs.
func demand(t *testing.T) Request {
	t.Helper()
	inputs, err := Scan(t.Context(), fn, []Mount{{Dir: local{"a": "1", "b/c": "2"}.write(t)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Request{
		Instance: "i", Inputs: inputs, Timeout: time.Minute, Priority: -1, SkipCacheLookup: true,
		Command: &repb.Command{
			Arguments: []string{"true"}, OutputPaths: []string{"b", "a"},
			EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "Z"}, {Name: "A"}},
		},
		Platform: &repb.Platform{Properties: []*repb.Platform_Property{{Name: "p", Value: "v"}}},
	}
}

func TestExecuteStreams(t *testing.T) {
	away := status.Error(codes.Unavailable, "away")
	ok := &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 3}, Message: "hello"}
	queued, executing := repb.ExecutionStage_QUEUED, repb.ExecutionStage_EXECUTING
	gone := &repb.ExecuteResponse{Status: missing(t).Proto()}
	for _, test := range []struct {
		name  string
		steps []step
		calls []string
		code  codes.Code // of the error; status has the code of the outcome
		state codes.Code
	}{
		{"at once", []step{finish(ok)}, []string{"execute"}, codes.OK, codes.OK},
		{
			"broken streams",
			[]step{breakOff("op", queued, away), breakOff("op", executing, nil), finish(ok)},
			[]string{"execute", "wait op", "wait op"},
			codes.OK, codes.OK,
		},
		{
			"away before the operation",
			[]step{func(func(*longrunningpb.Operation)) error { return away }, finish(ok)},
			[]string{"execute", "execute"},
			codes.OK, codes.OK,
		},
		{
			"the operation itself is an error", // with any code, the operation has ended
			[]step{func(send func(*longrunningpb.Operation)) error {
				send(&longrunningpb.Operation{
					Name: "op", Done: true, Result: &longrunningpb.Operation_Error{Error: status.Convert(away).Proto()},
				})
				return nil
			}},
			[]string{"execute"},
			codes.Unavailable, codes.OK,
		},
		{
			"neither result nor error", // must not count as exit code 0
			[]step{finish(&repb.ExecuteResponse{})},
			[]string{"execute"},
			codes.Unknown, codes.OK,
		},
		{
			"forgotten",
			[]step{
				breakOff("op", queued, away),
				func(func(*longrunningpb.Operation)) error { return status.Error(codes.NotFound, "op") },
				finish(ok),
			},
			[]string{"execute", "wait op", "execute"},
			codes.OK, codes.OK,
		},
		{
			"refused",
			[]step{breakOff("op", queued, status.Error(codes.InvalidArgument, "no"))},
			[]string{"execute"},
			codes.InvalidArgument, codes.OK,
		},
		{
			"missing, then there",
			[]step{finish(gone), finish(ok)},
			[]string{"execute", "execute"},
			codes.OK, codes.OK,
		},
		{
			"missing twice", // the first time as the error of the call
			[]step{func(func(*longrunningpb.Operation)) error { return missing(t).Err() }, finish(gone)},
			[]string{"execute", "execute"},
			codes.OK, codes.FailedPrecondition,
		},
		{
			"timed out",
			[]step{finish(&repb.ExecuteResponse{
				Status: status.New(codes.DeadlineExceeded, "too long").Proto(), Result: ok.Result,
			})},
			[]string{"execute"},
			codes.OK, codes.DeadlineExceeded,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := &script{steps: test.steps}
			farm := newFarm(t, server)
			outcome, err := Execute(t.Context(), farm.conn, demand(t))
			if status.Code(err) != test.code {
				t.Fatalf("error %v, want %v", err, test.code)
			}
			if !slices.Equal(server.calls, test.calls) {
				t.Errorf("calls %q, want %q", server.calls, test.calls)
			}
			if err != nil {
				return
			}
			if status.Code(outcome.Status) != test.state {
				t.Errorf("status %v, want %v", outcome.Status, test.state)
			}
			if test.state == codes.OK && (outcome.Result.GetExitCode() != 3 || outcome.Message != "hello") {
				t.Errorf("outcome %+v", outcome)
			}
		})
	}
}

// A cancelled is a script that also accepts requests to cancel operations.
type cancelled struct {
	script
	longrunningpb.UnimplementedOperationsServer
	names chan string
}

func (c *cancelled) CancelOperation(_ context.Context, r *longrunningpb.CancelOperationRequest) (*emptypb.Empty, error) {
	c.names <- r.GetName()
	return &emptypb.Empty{}, nil
}

// TestExecuteIsInterrupted ends the client's context while the action runs.
func TestExecuteIsInterrupted(t *testing.T) {
	for cancels, want := range map[bool][]string{true: {"op"}, false: nil} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		server := &cancelled{names: make(chan string, 1), script: script{steps: []step{
			func(send func(*longrunningpb.Operation)) error {
				send(at("op", repb.ExecutionStage_EXECUTING))
				<-left
				return nil
			},
		}}}
		farm := newFarm(t, server)
		req := demand(t)
		req.CancelWithContext = cancels
		req.Progress = func(e Event) {
			if e.Stage == Executing {
				leave()
			}
		}
		if _, err := Execute(ctx, farm.conn, req); status.Code(err) != codes.Canceled {
			t.Errorf("error %v", err)
		}
		close(left)
		close(server.names)
		var got []string
		for name := range server.names {
			got = append(got, name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("cancel %t: %q was cancelled, want %q", cancels, got, want)
		}
	}
}

// TestExecuteSends checks the messages that the server receives.
func TestExecuteSends(t *testing.T) {
	ok := finish(&repb.ExecuteResponse{Result: &repb.ActionResult{}, CachedResult: true})
	server := &script{steps: []step{ok, ok}}
	farm := newFarm(t, server)
	req := demand(t)
	var events []Event
	req.Progress = func(e Event) { events = append(events, e) }
	outcome, err := Execute(t.Context(), farm.conn, req)
	if err != nil {
		t.Fatal(err)
	}
	action, command := &repb.Action{}, &repb.Command{}
	read := func(d *repb.Digest, m proto.Message) {
		of, err := digest.FromProto(fn, d)
		if err != nil {
			t.Fatal(err)
		}
		b, err := farm.store.ReadBlob(t.Context(), of)
		if err := errors.Join(err, proto.Unmarshal(b, m)); err != nil {
			t.Fatal(err)
		}
	}
	r := server.requests[0]
	read(r.GetActionDigest(), action)
	read(action.GetCommandDigest(), command)
	if r.GetInstanceName() != "i" || !r.GetSkipCacheLookup() || r.GetExecutionPolicy().GetPriority() != -1 {
		t.Errorf("request %v", r)
	}
	if action.GetTimeout().AsDuration() != time.Minute || len(action.GetPlatform().GetProperties()) != 1 {
		t.Errorf("action %v", action)
	}
	if !slices.IsSorted(command.GetOutputPaths()) || command.GetEnvironmentVariables()[0].GetName() != "A" {
		t.Errorf("the command is not canonical: %v", command)
	}
	for _, b := range req.Inputs.Blobs {
		if !farm.store.Contains(b.Digest) {
			t.Errorf("%s was not uploaded", b.Digest)
		}
	}
	who := server.who[0]
	if who.GetToolDetails().GetToolName() != "forerunner" || who.GetActionId() != outcome.Action.Hash() ||
		who.GetToolInvocationId() == "" {
		t.Errorf("request metadata %v", who)
	}
	if len(events) < 3 || events[len(events)-1].Stage != Done ||
		events[len(events)-2] != (Event{Uploading, outcome.UploadedBytes, outcome.UploadedBytes}) {
		t.Errorf("events %v", events)
	}
	if outcome.UploadedBlobs != len(req.Inputs.Blobs)+2 || !outcome.Cached {
		t.Errorf("outcome %+v", outcome)
	}
	again, err := Execute(t.Context(), farm.conn, req)
	if err != nil || again.UploadedBlobs != 0 || again.Action != outcome.Action {
		t.Errorf("a second time: %+v, %v; want the same action and nothing uploaded", again, err)
	}
}
