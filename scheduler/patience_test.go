package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// TestStopWhilePatient: who waits for the end of a new operation learns that the scheduler stops, and
// first of the operation's name.
func TestStopWhilePatient(t *testing.T) {
	inFarm(t, ServerOptions{FirstUpdate: time.Hour, Config: tuning.Config{MaxQueued: 3}}, func(t *testing.T, f *farm) {
		var streams []*stream
		for _, name := range []string{"a", "b", "b", "c"} {
			streams = append(streams, f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action(name)}))
		}
		synctest.Wait()
		wantRetry(t, f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("full")}).fails(codes.ResourceExhausted, "queue is full"))
		f.stop()
		for _, s := range streams {
			if op := s.at(repb.ExecutionStage_QUEUED); op.GetName() == "" {
				t.Error("an operation has no name")
			}
			s.fails(codes.Unavailable, "shutting down")
		}
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("late")}).fails(codes.Unavailable, "shutting down")
	})
}

// TestWaitersAreTold: patience concerns only the stream of Execute.
func TestWaitersAreTold(t *testing.T) {
	inFarm(t, ServerOptions{FirstUpdate: time.Hour}, func(t *testing.T, f *farm) {
		d := f.storage.action("a")
		first := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		second := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		synctest.Wait()
		var waiters []*stream
		f.server.engine.EachOperation(nil, 0, func(_ uint64, op *request.Operation) bool {
			waiters = append(waiters, f.wait(t.Context(), op.Name))
			return true
		})
		for _, w := range waiters {
			w.at(repb.ExecutionStage_QUEUED)
		}
		w := f.worker("w")
		w.idle()
		w.running(d)
		for _, w := range waiters {
			w.at(repb.ExecutionStage_EXECUTING)
		}
		w.completed(d, success)
		for _, s := range append(waiters, first, second) {
			s.at(repb.ExecutionStage_COMPLETED)
		}
		if len(waiters) != 2 {
			t.Errorf("%d operations", len(waiters))
		}
	})
}
