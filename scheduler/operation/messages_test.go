package operation

import (
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// TestLongrunning decodes what clients are sent with a library.
func TestLongrunning(t *testing.T) {
	op := &request.Operation{Name: "operations/x", Digest: digest.Of(digest.SHA256, []byte("action"))}
	empty := &request.Operation{Name: "operations/y", Digest: digest.BLAKE3.Empty()}
	queued, started := time.Unix(1_800_000_000, 5), time.Unix(1_800_000_060, 0)
	response := &repb.ExecuteResponse{Message: "made", Result: &repb.ActionResult{ExitCode: 3}}
	stdout, stderr := "streams/operations/x/stdout", "streams/operations/x/stderr"
	for _, test := range []struct {
		name string
		st   event.Status
		want *repb.ExecuteOperationMetadata
	}{
		{
			"queued",
			event.Status{Operation: op, Stage: repb.ExecutionStage_QUEUED, Queued: queued},
			&repb.ExecuteOperationMetadata{
				PartialExecutionMetadata: &repb.ExecutedActionMetadata{QueuedTimestamp: timestamppb.New(queued)},
			},
		},
		{
			"executing",
			event.Status{Operation: op, Stage: repb.ExecutionStage_EXECUTING, Queued: queued, Started: started, Worker: "w"},
			&repb.ExecuteOperationMetadata{
				StdoutStreamName: stdout, StderrStreamName: stderr,
				PartialExecutionMetadata: &repb.ExecutedActionMetadata{
					Worker: "w", QueuedTimestamp: timestamppb.New(queued), WorkerStartTimestamp: timestamppb.New(started),
				},
			},
		},
		{
			"before 1970",
			event.Status{Operation: empty, Queued: time.Unix(-7, 0)},
			&repb.ExecuteOperationMetadata{
				PartialExecutionMetadata: &repb.ExecutedActionMetadata{QueuedTimestamp: timestamppb.New(time.Unix(-7, 0))},
			},
		},
		{
			"completed",
			event.Status{Operation: op, Stage: repb.ExecutionStage_COMPLETED, Response: response},
			&repb.ExecuteOperationMetadata{},
		},
	} {
		m, err := Longrunning(&test.st)
		if err != nil {
			t.Fatal(err)
		}
		want := test.want
		want.Stage, want.ActionDigest, want.DigestFunction = test.st.Stage, test.st.Digest.Proto(), test.st.Digest.Function().Proto()
		got := &repb.ExecuteOperationMetadata{}
		if err := m.GetMetadata().UnmarshalTo(got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: metadata %v, %v; want %v", test.name, got, err, want)
		}
		if m.GetName() != test.st.Name || m.GetDone() != test.st.Done() {
			t.Errorf("%s: operation %v", test.name, m)
		}
		if !test.st.Done() {
			continue
		}
		result := &repb.ExecuteResponse{}
		if err := m.GetResponse().UnmarshalTo(result); err != nil || !proto.Equal(result, response) {
			t.Errorf("%s: response %v, %v", test.name, result, err)
		}
	}
}
