package scheduler

import (
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

// TestTooManyFollow has the maximum number of streams follow an operation. One more gets an error
// that asks to come back.
func TestTooManyFollow(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		req := &repb.ExecuteRequest{ActionDigest: f.storage.action("a")}
		name := f.execute(t.Context(), req).at(repb.ExecutionStage_QUEUED).GetName()
		one := engine.NewMailbox()
		f.server.engine.Under(func(t engine.Turn) {
			t.Follow(name, one)
			for range engine.MaxFollowers - 2 {
				t.Follow(name, engine.NewMailbox())
			}
		})

		wantRetry(t, f.wait(t.Context(), name).fails(codes.ResourceExhausted, "1000 streams follow operation"))
		read := f.server.ByteStream(&bytestream.UnimplementedByteStreamServer{}).Read
		output := readerStream{ctx: t.Context(), got: make(chan string)}
		err := read(&bytestream.ReadRequest{ResourceName: names.StreamPrefix + name + names.StdoutSuffix}, output)
		wantStatus(t, err, codes.ResourceExhausted, "1000 streams follow operation")
		wantRetry(t, err)
		f.execute(t.Context(), req).at(repb.ExecutionStage_QUEUED) // it has an operation of its own

		f.server.engine.Under(func(t engine.Turn) {
			t.Unfollow(name, one)
		})
		f.wait(t.Context(), name).at(repb.ExecutionStage_QUEUED)
	})
}
