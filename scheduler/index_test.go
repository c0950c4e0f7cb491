package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	indexed "github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// fakeRecords are Durable records in memory that can be away.
type fakeRecords struct {
	mu      sync.Mutex
	records map[indexed.Key][]byte
	away    bool
	puts    int
}

func (f *fakeRecords) Get(_ context.Context, k indexed.Key) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	value, ok := f.records[k]
	switch {
	case f.away:
		return nil, errors.New("away")
	case !ok:
		return nil, indexed.ErrNotFound
	}
	return value, nil
}

func (f *fakeRecords) Put(_ context.Context, k indexed.Key, value []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errors.New("away")
	}
	if f.records == nil {
		f.records = map[indexed.Key][]byte{}
	}
	f.records[k] = value
	f.puts++
	return nil
}

// CompareAndSwap is not what an Index needs.
func (f *fakeRecords) CompareAndSwap(context.Context, indexed.Key, []byte, []byte) error {
	return errors.New("not implemented")
}

func heldNames(held []event.Held) string {
	var names []string
	for _, h := range held {
		names = append(names, h.Name)
	}
	return strings.Join(names, " ")
}

// TestNextSchedulerKnowsWhatRuns ends a Server while two actions run. The next one begins with the
// stored operations, and clients come back before workers.
func TestNextSchedulerKnowsWhatRuns(t *testing.T) {
	records := &fakeRecords{}
	index := func() *Index { return NewIndex(records, "farm", zap.NewNop()) }
	var back, lost string
	var ran *repb.Digest
	inFarm(t, ServerOptions{Index: index()}, func(t *testing.T, f *farm) {
		start := func(name string) (string, *repb.Digest) {
			d := f.storage.action(name)
			s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
			s.at(repb.ExecutionStage_QUEUED)
			f.worker(name).idle()
			return s.at(repb.ExecutionStage_EXECUTING).GetName(), d
		}
		back, ran = start("back")
		time.Sleep(time.Millisecond)
		lost, _ = start("lost")
		time.Sleep(3 * indexEvery)
	})
	var held []event.Held
	synctest.Test(t, func(t *testing.T) { held = index().Load(t.Context()) })
	if got := heldNames(held); got != back+" "+lost {
		t.Fatalf("%q is remembered, want %s and %s", got, back, lost)
	}
	inFarm(t, ServerOptions{Index: index(), Held: held}, func(t *testing.T, f *farm) {
		op := asked(t, f.operator().GetOperation, &admin.GetOperationRequest{Name: back})
		workers := asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetWorkers()
		if !op.GetWorkerAway() || len(workers) != 2 || workers[0].GetState() != admin.Worker_AWAY {
			t.Errorf("%v, %v", op, workers)
		}
		waits := f.wait(t.Context(), back)
		waits.at(repb.ExecutionStage_EXECUTING)
		gone := f.wait(t.Context(), lost)
		gone.at(repb.ExecutionStage_EXECUTING)
		w := f.worker("back")
		w.running(ran)
		w.completed(ran, &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 7}})
		if r := waits.done(); r.GetResult().GetExitCode() != 7 {
			t.Errorf("%v", r)
		}
		gone.fails(codes.NotFound, "is unknown")
	})
	synctest.Test(t, func(t *testing.T) {
		if held := index().Load(t.Context()); len(held) != 0 {
			t.Errorf("%s is still remembered", heldNames(held))
		}
	})
}

func heldOnes(n int) (held []event.Held) {
	for i := range n {
		d := digest.Of(digest.SHA256, fmt.Append(nil, i))
		held = append(held, event.Held{
			Operation: &request.Operation{Name: fmt.Sprintf("operations/%04d", i), Digest: d, Action: &repb.Action{DoNotCache: true}},
			Worker:    fmt.Sprint("w", i), Started: time.Now(), Attempts: 2,
		})
	}
	return held
}

// TestIndexIsWrittenAsNeeded counts writes.
func TestIndexIsWrittenAsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &fakeRecords{}
		x := NewIndex(records, "farm", zap.NewNop())
		write := func(held []event.Held, atMost int) {
			t.Helper()
			before := records.puts
			x.write(t.Context(), held)
			if n := records.puts - before; n > atMost {
				t.Errorf("%d writes, want at most %d", n, atMost)
			}
			if got := NewIndex(records, "farm", zap.NewNop()).Load(t.Context()); heldNames(got) != heldNames(held) {
				t.Errorf("%d are remembered, want %d", len(got), len(held))
			}
		}
		held := heldOnes(500)
		write(held, indexParts)
		write(held, 0)
		write(held[:499], 1)
		got := NewIndex(records, "farm", zap.NewNop()).Load(t.Context())
		if h := got[3]; h.Digest != held[3].Digest || !h.Action.GetDoNotCache() || h.Worker != "w3" || h.Attempts != 2 || !h.Started.Equal(held[3].Started) {
			t.Errorf("%+v", h)
		}
		if others := NewIndex(records, "other", zap.NewNop()).Load(t.Context()); len(others) != 0 {
			t.Errorf("another name has %s", heldNames(others))
		}
		time.Sleep(indexFresh - time.Second)
		write(held[:499], indexParts) // they are refreshed
		time.Sleep(indexFresh + time.Second)
		if old := NewIndex(records, "farm", zap.NewNop()).Load(t.Context()); len(old) != 0 {
			t.Errorf("%d are remembered for ever", len(old))
		}
	})
}

// TestIndexWithoutItsStore has the store fail. Nothing may wait for it, and unwritten data must be
// written later.
func TestIndexWithoutItsStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := &fakeRecords{away: true}
		x := NewIndex(records, "farm", zap.NewNop())
		if held := x.Load(t.Context()); held != nil {
			t.Errorf("%d of nothing", len(held))
		}
		held := heldOnes(10)
		x.write(t.Context(), held)
		records.away = false
		time.Sleep(2 * time.Second) // it is left alone for one
		x.write(t.Context(), held)
		if got := NewIndex(records, "farm", zap.NewNop()).Load(t.Context()); heldNames(got) != heldNames(held) {
			t.Errorf("%s are remembered", heldNames(got))
		}
	})
}
