package scheduler

import (
	"math/rand/v2"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
)

// TestFollowers compares the streams of an operation with a slice.
func TestFollowers(t *testing.T) {
	s := must(NewServer(ServerOptions{Storage: func(string, digest.Function) Storage { return newFakeStorage() }}))
	random := rand.New(rand.NewPCG(1, 2))
	var want []*mailbox
	for range 1000 {
		if i := random.IntN(6); i < len(want) {
			s.unfollowLocked("op", want[i])
			want = slices.Delete(want, i, i+1)
		} else {
			m := newMailbox()
			s.followLocked("op", m)
			want = slices.Insert(want, 0, m)
		}
		var got []*mailbox
		for m := s.streams["op"].first; m != nil; m = m.next {
			got = append(got, m)
		}
		if !slices.Equal(got, want) || s.streams["op"].count != len(want) || len(s.streams) != min(len(want), 1) {
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
		f.server.mu.Lock()
		f.server.followLocked(name, one)
		for range maxFollowers - 2 {
			f.server.followLocked(name, newMailbox())
		}
		f.server.mu.Unlock()

		wantRetry(t, f.wait(t.Context(), name).fails(codes.ResourceExhausted, "1000 streams follow operation"))
		read := f.server.ByteStream(&bytestream.UnimplementedByteStreamServer{}).Read
		output := readerStream{ctx: t.Context(), got: make(chan string)}
		err := read(&bytestream.ReadRequest{ResourceName: names.StreamPrefix + name + names.StdoutSuffix}, output)
		wantStatus(t, err, codes.ResourceExhausted, "1000 streams follow operation")
		wantRetry(t, err)
		f.execute(t.Context(), req).at(repb.ExecutionStage_QUEUED) // it has an operation of its own

		f.server.mu.Lock()
		f.server.unfollowLocked(name, one)
		f.server.mu.Unlock()
		f.wait(t.Context(), name).at(repb.ExecutionStage_QUEUED)
	})
}
