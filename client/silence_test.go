package client

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/rpctest"
)

// A sleeper is a script that returns its capabilities while it is awake.
type sleeper struct {
	script
	repb.UnimplementedCapabilitiesServer
	repb.UnimplementedContentAddressableStorageServer
	mu     sync.Mutex
	asleep chan struct{} // closed when it wakes up; nil while it is awake
	asked  int
}

func (*sleeper) FindMissingBlobs(context.Context, *repb.FindMissingBlobsRequest) (*repb.FindMissingBlobsResponse, error) {
	return &repb.FindMissingBlobsResponse{}, nil
}

// GetCapabilities does not answer while s is asleep, not even at the request's deadline: the answer
// could reach the client at the moment of the client's own deadline.
func (s *sleeper) GetCapabilities(context.Context, *repb.GetCapabilitiesRequest) (*repb.ServerCapabilities, error) {
	s.mu.Lock()
	asleep := s.asleep
	s.asked++
	s.mu.Unlock()
	if asleep != nil {
		<-asleep
	}
	return nil, status.Error(codes.Unimplemented, "capabilities are not available")
}

func (s *sleeper) sleep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep = make(chan struct{})
}

func (s *sleeper) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.asleep)
	s.asleep = nil
}

// run executes an action, and returns the reported stages.
func (s *sleeper) run(t *testing.T) (stages []Stage, err error) {
	t.Helper()
	g := grpc.NewServer()
	repb.RegisterExecutionServer(g, s)
	repb.RegisterCapabilitiesServer(g, s)
	repb.RegisterContentAddressableStorageServer(g, s)
	_, err = Execute(t.Context(), rpctest.Serve(t, g), Request{
		Command:  NewCommand([]string{"true"}, nil, "", nil, nil),
		Progress: func(e Event) { stages = append(stages, e.Stage) },
	})
	return stages, err
}

var fine = finish(&repb.ExecuteResponse{Result: &repb.ActionResult{}})

// TestServerThatHangs stops a scheduler with all its connections while an action runs, and
// continues it. The client must report the silence and resume the operation.
func TestServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		s.steps = []step{func(send func(*longrunningpb.Operation)) error {
			send(at("op", repb.ExecutionStage_EXECUTING))
			s.sleep()
			time.Sleep(time.Minute)
			s.wake()
			return nil // the client has left
		}, func(send func(*longrunningpb.Operation)) error {
			for s.sleeping() {
				time.Sleep(time.Second)
			}
			send(at("op", repb.ExecutionStage_EXECUTING))
			return fine(send)
		}}
		stages, err := s.run(t)
		if want := []Stage{Uploading, Executing, Silent, Executing, Done}; err != nil || !slices.Equal(stages, want) {
			t.Errorf("stages %v, want %v, %v", stages, want, err)
		}
		if want := []string{"execute", "wait op"}; !slices.Equal(s.calls, want) {
			t.Errorf("calls %q, want %q", s.calls, want)
		}
	})
}

func (s *sleeper) timesAsked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *sleeper) sleeping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asleep != nil
}

// TestServerThatIsQuiet has an action that runs for an hour without messages, and a scheduler that
// does not even support the client's question. An error is an answer, too.
func TestServerThatIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		s.steps = []step{func(send func(*longrunningpb.Operation)) error {
			send(at("op", repb.ExecutionStage_EXECUTING))
			time.Sleep(time.Hour)
			return fine(send)
		}}
		stages, err := s.run(t)
		if want := []Stage{Uploading, Executing, Done}; err != nil || !slices.Equal(stages, want) || s.timesAsked() == 0 {
			t.Errorf("stages %v, want %v; asked %d times, %v", stages, want, s.timesAsked(), err)
		}
	})
}

// TestQuietServerRestarts restarts the same scheduler, which takes a while. The client must wait
// for it as long as for one that sent a message just before, and the scheduler may have forgotten
// the operation.
func TestQuietServerRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := func(func(*longrunningpb.Operation)) error { return status.Error(codes.Unavailable, "away") }
		s := &sleeper{}
		s.steps = []step{func(send func(*longrunningpb.Operation)) error {
			send(at("op", repb.ExecutionStage_EXECUTING))
			time.Sleep(time.Hour)
			return away(send)
		}, away, away, func(func(*longrunningpb.Operation)) error { return status.Error(codes.NotFound, "op") }, fine}
		stages, err := s.run(t)
		if want := []Stage{Uploading, Executing, Done}; err != nil || !slices.Equal(stages, want) {
			t.Errorf("stages %v, want %v, %v", stages, want, err)
		}
		if want := []string{"execute", "wait op", "wait op", "wait op", "execute"}; !slices.Equal(s.calls, want) {
			t.Errorf("calls %q, want %q", s.calls, want)
		}
	})
}

// TestServerThatHangsForGood checks that the client gives up.
func TestServerThatHangsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{}
		s.sleep()
		asleep := s.asleep
		hangs := func(func(*longrunningpb.Operation)) error { <-asleep; return nil }
		s.steps = slices.Repeat([]step{hangs}, 20)
		began := time.Now()
		if _, err := s.run(t); status.Code(err) != codes.Unavailable || time.Since(began) > 2*retryFor {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		s.wake()
	})
}
