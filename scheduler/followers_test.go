package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/names"
)

// TestFollowers compares the streams of an operation with a slice.
func TestFollowers(t *testing.T) {
	s := streams{}
	random := rand.New(rand.NewPCG(1, 2))
	var want []*mailbox
	for range 1000 {
		if i := random.IntN(6); i < len(want) {
			s.remove("op", want[i])
			want = slices.Delete(want, i, i+1)
		} else {
			m := newMailbox()
			s.add("op", m)
			want = slices.Insert(want, 0, m)
		}
		var got []*mailbox
		for m := s["op"].first; m != nil; m = m.next {
			got = append(got, m)
		}
		if !slices.Equal(got, want) || s["op"].count != len(want) || len(s) != min(len(want), 1) {
			t.Fatalf("%v follow, want %v", got, want)
		}
	}
}

// TestTooManyFollow has as many streams follow an operation as may: what would be one more is told to come back.
func TestTooManyFollow(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		req := &repb.ExecuteRequest{ActionDigest: f.storage.action("a")}
		name := f.execute(t.Context(), req).at(repb.ExecutionStage_QUEUED).GetName()
		one := newMailbox()
		f.server.engine.mu.Lock()
		f.server.engine.streams.add(name, one)
		for range maxFollowers - 2 {
			f.server.engine.streams.add(name, newMailbox())
		}
		f.server.engine.mu.Unlock()

		wantRetry(t, f.wait(t.Context(), name).fails(codes.ResourceExhausted, "1000 streams follow operation"))
		read := f.server.ByteStream(&bytestream.UnimplementedByteStreamServer{}).Read
		output := readerStream{ctx: t.Context(), got: make(chan string)}
		err := read(&bytestream.ReadRequest{ResourceName: names.StreamPrefix + name + names.StdoutSuffix}, output)
		wantStatus(t, err, codes.ResourceExhausted, "1000 streams follow operation")
		wantRetry(t, err)
		f.execute(t.Context(), req).at(repb.ExecutionStage_QUEUED) // it has an operation of its own

		f.server.engine.mu.Lock()
		f.server.engine.streams.remove(name, one)
		f.server.engine.mu.Unlock()
		f.wait(t.Context(), name).at(repb.ExecutionStage_QUEUED)
	})
}
