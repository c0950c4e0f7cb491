package live

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

// TestOutputOfALostWorker has another worker run the action after a worker was lost: the output of
// the first command does not count.
func TestOutputOfALostWorker(t *testing.T) {
	v := &view{registry: NewRegistry(), watch: &live.Watch{}}
	see := func(attempts int, worker string) error {
		return v.follow(&event.Status{Stage: repb.ExecutionStage_EXECUTING, Attempts: attempts, Worker: worker})
	}
	if err := errors.Join(see(1, "a"), see(1, "a"), see(2, "b")); err != nil {
		t.Error(err)
	}
	v.watch.Offset = 1
	if err := errors.Join(see(2, "b"), v.follow(&event.Status{Stage: repb.ExecutionStage_QUEUED})); err != nil {
		t.Error(err)
	}
	if err := see(3, "b"); !names.IsStartedOver(err) {
		t.Errorf("the reader is told %v", err)
	}
}

// TestReadersOfManyCallers has one caller use all streams of a worker. Another caller must get one
// of them.
func TestReadersOfManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewRegistry()
		_, hangUp, _ := l.show(&live.ServeRequest{Workers: []*live.Identity{{WorkerId: map[string]string{"id": "w"}}}}, "")
		defer hangUp()
		worker := names.WorkerKey("", map[string]string{"id": "w"})
		ended := make(chan error, readersOfWorker)
		read := func(ctx context.Context, caller string) {
			v := &view{registry: l, caller: caller, watch: &live.Watch{}}
			defer func() { l.close(v.reader) }()
			ended <- v.run(ctx, &event.Status{Stage: repb.ExecutionStage_EXECUTING, Attempts: 1, Worker: worker}, engine.NewMailbox())
		}
		ctx, leave := context.WithCancel(t.Context())
		defer func() { leave(); synctest.Wait() }()
		for range readersOfWorker {
			go read(ctx, "greedy")
		}
		synctest.Wait()
		go read(ctx, "greedy")
		if err := <-ended; status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more stream of the same caller: %v", err)
		}
		go read(ctx, "modest")
		if err := <-ended; status.Code(err) != codes.ResourceExhausted || err.Error() != errYielded().Error() {
			t.Errorf("who makes room is told %v", err)
		}
		synctest.Wait()
		if len(ended) != 0 {
			t.Errorf("another one ends as well: %v", <-ended)
		}
	})
}

// TestReadersThatCome has a caller read and hang up repeatedly. Each stream counts for him until
// the worker knows that it has ended, so that the worker never has too many.
func TestReadersThatCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewRegistry()
		shows, hangUp, _ := l.show(&live.ServeRequest{Workers: []*live.Identity{{WorkerId: map[string]string{"id": "w"}}}}, "")
		defer hangUp()
		worker := names.WorkerKey("", map[string]string{"id": "w"})
		for range readersOfWorker {
			r, err := l.open(worker, "hasty", &live.Watch{})
			if err != nil || r == nil {
				t.Fatal(r, err)
			}
			l.close(r)
		}
		if _, err := l.open(worker, "hasty", &live.Watch{}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a stream more than the worker knows the end of: %v", err)
		}
		if done, err := l.push(t.Context(), &live.Chunk{Id: (<-shows.asks).GetId()}); !done || err != nil {
			t.Error("the worker is not told that nobody reads: ", err)
		}
		for range 2 {
			r, err := l.open(worker, "hasty", &live.Watch{})
			if err != nil {
				t.Fatal(err)
			}
			l.close(r)
			time.Sleep(2 * lingers) // a worker that says nothing
		}
		synctest.Wait()
		if len(l.readers) != 0 {
			t.Errorf("%d readers are left", len(l.readers))
		}
	})
}

// TestRefusedStream has a worker refuse a stream, which it is asked for again.
func TestRefusedStream(t *testing.T) {
	v := &view{registry: NewRegistry(), watch: &live.Watch{}}
	for i := range maxRefused {
		if err := v.take(&live.Chunk{Refused: true}); (status.Code(err) == codes.ResourceExhausted) != (i == maxRefused-1) {
			t.Errorf("refused %d times: %v", i+1, err)
		}
	}
}
