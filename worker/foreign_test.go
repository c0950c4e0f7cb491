package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	livepb "github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/vfs"
)

// A liveService is a scheduler's service for live output, as far as a worker needs it to detect the
// kind of scheduler.
type liveService struct {
	livepb.OutputsClient
	answer codes.Code    // to every call
	hold   chan struct{} // nil: it answers at once; else when this is closed
	asked  chan struct{} // gets a token with the first call of Tell
}

func (s *liveService) Serve(context.Context, *livepb.ServeRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[livepb.Watch], error) {
	return nil, status.Error(cmp.Or(s.answer, codes.Unavailable), "the test's answer") // a successful call does not end
}

func (s *liveService) Tell(ctx context.Context, _ *livepb.Report, _ ...grpc.CallOption) (*livepb.Told, error) {
	select {
	case s.asked <- struct{}{}:
	default:
	}
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return &livepb.Told{}, status.Error(s.answer, "the test's answer")
}

// newFarmUnder is a farm with two slots and three further positions, whose scheduler has this
// service.
func newFarmUnder(t *testing.T, service *liveService) *farm {
	t.Helper()
	service.asked = make(chan struct{}, 1)
	return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{slots: 2, change: func(o *Options) {
		o.Live, o.FetchWidth, o.ReportWidth = service, 1, 2
	}})
}

// called returns the positions that have called the scheduler so far.
func (s *fakeScheduler) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]bool{}
	for _, r := range s.requests {
		seen[r.GetWorkerId()[names.PositionKey]] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// runsTwo runs two actions at once.
func (f *farm) runsTwo(t *testing.T) {
	t.Helper()
	first, openFirst := gated(t, "first")
	second, openSecond := gated(t, "second")
	one, two := f.start(t, first), f.start(t, second)
	one.reaches(t, "running")
	two.reaches(t, "running")
	openFirst()
	openSecond()
	assertOK(t, one.result(t))
	assertOK(t, two.result(t))
}

// TestForeignScheduler has a scheduler that does not know live output: it counts each identity as a
// machine, and sees as many as there are slots, however wide the pipeline is.
func TestForeignScheduler(t *testing.T) {
	f := newFarmUnder(t, &liveService{answer: codes.Unimplemented})
	f.runsTwo(t)
	f.drain()
	f.wait(t) // each position has made its last call
	if got := f.scheduler.called(); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("a worker with two slots calls as %q", got)
	}
}

// TestRestlessScheduler has a scheduler that holds no calls of idle workers: they do not call again
// at once.
func TestRestlessScheduler(t *testing.T) {
	f := newFarmUnder(t, &liveService{answer: codes.Unimplemented})
	f.scheduler.mu.Lock()
	f.scheduler.restless = true
	f.scheduler.mu.Unlock()
	f.runsTwo(t)
	before := f.scheduler.idleCalls()
	assertOK(t, f.run(t, spec{shell: "sleep 2"})) // besides this, a position is idle
	if n := f.scheduler.idleCalls() - before; n > 200 {
		t.Errorf("the worker has called %d times for work", n)
	}
}

// idleCalls counts the calls of positions that want an action.
func (s *fakeScheduler) idleCalls() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r.GetCurrentState().GetIdle() != nil && !r.GetPreferBeingIdle() {
			n++
		}
	}
	return n
}

// TestOwnScheduler has schedulers of Forerunner, however they answer: all positions call.
func TestOwnScheduler(t *testing.T) {
	for _, answer := range []codes.Code{codes.OK, codes.FailedPrecondition, codes.PermissionDenied} {
		t.Run(answer.String(), func(t *testing.T) {
			f := newFarmUnder(t, &liveService{answer: answer})
			f.runsTwo(t)
			f.drain()
			f.wait(t)
			if got := f.scheduler.called(); len(got) != 5 {
				t.Errorf("a worker with five positions calls as %q", got)
			}
		})
	}
}

// TestSilentScheduler has a scheduler that assigns work, but says who it is only later, or when the
// worker drains. Until then the worker must run as many actions as it has slots.
func TestSilentScheduler(t *testing.T) {
	for name, says := range map[string]bool{"says it late": true, "never says it": false} {
		t.Run(name, func(t *testing.T) {
			service := &liveService{answer: codes.FailedPrecondition, hold: make(chan struct{})}
			f := newFarmUnder(t, service)
			<-service.asked
			f.runsTwo(t)
			if got := f.scheduler.called(); !slices.Equal(got, []string{"0", "1"}) {
				t.Errorf("before the scheduler has said who it is, the worker calls as %q", got)
			}
			want := 2
			if says {
				want = 5
				close(service.hold)
				f.scheduler.heard(t, "the last position", func(r *remoteworker.SynchronizeRequest) bool {
					return r.GetWorkerId()[names.PositionKey] == "4"
				})
			}
			f.drain()
			f.wait(t)
			if got := f.scheduler.called(); len(got) != want {
				t.Errorf("the worker calls as %q, want %d positions", got, want)
			}
		})
	}
}
