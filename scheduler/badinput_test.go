package scheduler

import (
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
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
