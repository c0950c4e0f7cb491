package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/proto/runs"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// sizeStore is a record.Hints in memory.
type sizeStore struct {
	mu      sync.Mutex
	records map[record.Key][]byte
}

func (s *sizeStore) Get(_ context.Context, k record.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok := s.records[k]; ok {
		return bytes.Clone(value), nil
	}
	return nil, record.ErrNotFound
}

func (s *sizeStore) Put(_ context.Context, k record.Key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[k] = bytes.Clone(value)
	return nil
}

// A sizedWorker runs what it gets as one of some CPUs and GiB would. Failures it reports as a
// worker does.
type sizedWorker struct {
	*fakeWorker
	class  uint32
	memory float64 // that actions need, in GiB
	ran    int
	last   *runs.Placement
}

func (w *sizedWorker) serve() {
	w.req.SizeClass = w.class
	w.req.CurrentState = nil
	for {
		x := w.next()
		if x == nil {
			return
		}
		w.ran++
		w.last = &runs.Placement{}
		for _, packed := range x.GetAuxiliaryMetadata() {
			_ = packed.UnmarshalTo(w.last)
		}
		used := &actionstats.Resources{
			UserTime: durationpb.New(time.Second), Cpus: int32(w.class), MemoryLimitBytes: int64(w.class) << 30,
			MemoryPeakBytes: int64(min(w.memory, float64(w.class)) * (1 << 30)),
		}
		result := &repb.ActionResult{}
		if w.memory > float64(w.class) {
			result.ExitCode, used.OutOfMemoryKills = 137, 1
		}
		packed := must(anypb.New(used))
		result.ExecutionMetadata = &repb.ExecutedActionMetadata{
			VirtualExecutionDuration: durationpb.New(time.Second),
			AuxiliaryMetadata:        append(x.GetAuxiliaryMetadata(), packed),
		}
		time.Sleep(time.Second) // virtual
		w.req.CurrentState = executing(&remoteworker.CurrentState_Executing{
			ActionDigest: x.GetActionDigest(),
			ExecutionState: &remoteworker.CurrentState_Executing_Completed{
				Completed: &repb.ExecuteResponse{Result: result},
			},
		})
		_, _ = w.sync(w.f.t.Context())
	}
}

// next waits for an action; nil at the end of the farm.
func (w *sizedWorker) next() *remoteworker.DesiredState_Executing {
	for {
		w.req.CurrentState = &remoteworker.CurrentState{
			WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}},
		}
		resp, err := w.sync(w.f.t.Context())
		if err != nil {
			return nil
		}
		if x := resp.GetDesiredState().GetExecuting(); x != nil {
			return x
		}
	}
}

// TestSizeClassesAreLearned has actions of two kinds find their workers, and find them again with
// another scheduler over the same store.
func TestSizeClassesAreLearned(t *testing.T) {
	store := &sizeStore{records: map[record.Key][]byte{}}
	for name, c := range map[string]struct {
		memory float64
		want   uint32
	}{
		"needs little": {0.2, 1},
		"needs much":   {2.5, 4},
	} {
		for _, life := range []string{"first", "restarted"} {
			sizes, err := sizeclass.NewAnalyzer(store, sizeclass.Options{})
			if err != nil {
				t.Fatal(err)
			}
			inFarm(t, ServerOptions{Sizes: sizes}, func(t *testing.T, f *farm) {
				small := &sizedWorker{fakeWorker: f.worker("small"), class: 1, memory: c.memory}
				large := &sizedWorker{fakeWorker: f.worker("large"), class: 4, memory: c.memory}
				var serving sync.WaitGroup
				serving.Go(small.serve)
				serving.Go(large.serve)
				time.Sleep(time.Second)
				action := f.storage.action(name)
				const times = 12
				for range times {
					resp := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: action}).done()
					if resp.GetResult().GetExitCode() != 0 {
						t.Errorf("%s: the client sees %v", name, resp)
					}
					if noted := strings.Contains(resp.GetMessage(), "ran on size class 4"); noted != (large.last.GetAttempt() == 2) && c.want == 4 {
						t.Errorf("%s: message %q, placement %v", name, resp.GetMessage(), large.last)
					}
					if large.last.GetAttempt() == 2 {
						large.last = nil
					}
					time.Sleep(time.Second) // it is learned
				}
				on, off := small, large
				if c.want == 4 {
					on, off = large, small
				}
				if off.ran > times/2 || life == "restarted" && off.ran > 0 {
					t.Errorf("%s, %s: class %d ran %d, the other one %d", name, life, c.want, on.ran, off.ran)
				}
				if on.last != nil && (on.last.GetSizeClass() != c.want || on.last.GetReason() == "") {
					t.Errorf("%s: placement %v", name, on.last)
				}
				next := &request.Operation{Digest: must(digest.FromProto(digest.SHA256, action))}
				storage := f.server.requests.StorageOf(next)
				if err := f.server.requests.Load(t.Context(), storage, next); err != nil {
					t.Error(err)
				}
				if f.server.learning.Choose(t.Context(), storage, next); next.Expected <= 0 || next.Expected != next.Size.Expected {
					t.Errorf("%s: the next one is expected to take %s, on its class %s", name, next.Expected, next.Size.Expected)
				}
				f.stop()
				serving.Wait()
			})
		}
	}
}

// TestNewActionsAreTakenForTheirSiblings has actions of one tool need a large worker: those that
// come later are never tried on a small one. Nothing but the tool tells that they are alike.
func TestNewActionsAreTakenForTheirSiblings(t *testing.T) {
	sizes := must(sizeclass.NewAnalyzer(&sizeStore{records: map[record.Key][]byte{}}, sizeclass.Options{}))
	inFarm(t, ServerOptions{Sizes: sizes}, func(t *testing.T, f *farm) {
		small := &sizedWorker{fakeWorker: f.worker("small"), class: 1, memory: 2.5}
		large := &sizedWorker{fakeWorker: f.worker("large"), class: 4, memory: 2.5}
		var serving sync.WaitGroup
		serving.Go(small.serve)
		serving.Go(large.serve)
		time.Sleep(time.Second)
		run := func(name string) {
			action := f.storage.action(name, func(_ *repb.Action, c *repb.Command) { c.Arguments = []string{"/usr/bin/cc", name} })
			f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: action}).done()
			time.Sleep(time.Second) // it is learned
		}
		for n := range 8 {
			run(fmt.Sprint("known", n))
		}
		if small.ran == 0 {
			t.Fatal("nothing was tried on the small worker")
		}
		before := small.ran
		for n := range 8 {
			run(fmt.Sprint("new", n))
		}
		if small.ran != before {
			t.Errorf("%d of 8 new actions were tried on the small worker", small.ran-before)
		}
		f.stop()
		serving.Wait()
	})
}

// TestOneSizeClassIsNoChoice: with one size class nothing is read or written.
func TestOneSizeClassIsNoChoice(t *testing.T) {
	store := &sizeStore{records: map[record.Key][]byte{}}
	sizes, err := sizeclass.NewAnalyzer(store, sizeclass.Options{})
	if err != nil {
		t.Fatal(err)
	}
	inFarm(t, ServerOptions{Sizes: sizes}, func(t *testing.T, f *farm) {
		w := &sizedWorker{fakeWorker: f.worker("only"), class: 4, memory: 1}
		var serving sync.WaitGroup
		serving.Go(w.serve)
		time.Sleep(time.Second)
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("a")}).done()
		time.Sleep(time.Second)
		if w.last.GetSizeClass() != 0 || len(store.records) != 0 {
			t.Errorf("placement %v, %d records", w.last, len(store.records))
		}
		f.stop()
		serving.Wait()
	})
}
