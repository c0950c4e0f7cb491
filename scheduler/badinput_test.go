package scheduler

import (
	"fmt"
	"math"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// TestHugeInvocationID has an invocation id of 1 MB.
func TestHugeInvocationID(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		header := must(proto.Marshal(&repb.RequestMetadata{ToolInvocationId: strings.Repeat("x", 1<<20)}))
		ctx := metadata.AppendToOutgoingContext(t.Context(), names.RequestMetadataHeader, string(header))
		f.execute(ctx, &repb.ExecuteRequest{ActionDigest: f.storage.action("a")}).
			fails(codes.InvalidArgument, fmt.Sprintf("has %d bytes; the maximum is 65536", len(header)))
		if n := f.server.Counts(); n != (view.Counts{}) {
			t.Errorf("a rejected call left %+v", n)
		}
	})
}

// TestInvalidStatusCodes has workers report status codes that gRPC does not have, or neither a result
// nor an error: clients get an error that they know.
func TestInvalidStatusCodes(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		w := f.worker("w")
		for _, c := range []struct {
			response *repb.ExecuteResponse
			want     string
		}{
			{&repb.ExecuteResponse{Status: &spb.Status{Code: 17, Message: "mist"}}, "invalid status code 17: mist"},
			{&repb.ExecuteResponse{Status: &spb.Status{Code: 99}, Result: success.GetResult()}, "invalid status code 99"},
			{&repb.ExecuteResponse{Status: &spb.Status{Code: -1}}, "invalid status code -1"},
			{&repb.ExecuteResponse{Status: &spb.Status{Code: math.MinInt32}}, "invalid status code -2147483648"},
			{&repb.ExecuteResponse{}, "reported neither a result nor an error"},
			{nil, "reported neither a result nor an error"},
		} {
			d := f.storage.action(c.want)
			s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
			s.at(repb.ExecutionStage_QUEUED)
			w.idle()
			w.completed(d, c.response)
			st := s.done().GetStatus()
			if st.GetCode() != int32(codes.Internal) || !strings.Contains(st.GetMessage(), c.want) {
				t.Errorf("the worker reported %v, the client got %v", c.response, st)
			}
		}
	})
}
