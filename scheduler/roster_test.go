package scheduler

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

func sumOfHost(name string) WorkerSum {
	return sumOfWorker(names.WorkerKey("", map[string]string{"host": name}))
}

// TestWorkersThatWereThere: a scheduler waits for the workers of the previous one, and for no
// others.
func TestWorkersThatWereThere(t *testing.T) {
	const settle = time.Hour
	for name, test := range map[string]struct {
		expected []WorkerSum
		back     time.Duration // until the second of two workers calls
		want     time.Duration // until the first has an action
	}{
		"none":    {[]WorkerSum{}, time.Minute, 0},
		"one":     {[]WorkerSum{sumOfHost("a")}, time.Minute, 0},
		"both":    {[]WorkerSum{sumOfHost("a"), sumOfHost("b")}, time.Minute, time.Minute},
		"gone":    {[]WorkerSum{sumOfHost("a"), sumOfHost("c")}, time.Minute, settle},
		"unknown": {nil, time.Minute, settle},
	} {
		t.Run(name, func(t *testing.T) {
			o := ServerOptions{Config: tuning.Config{Settle: settle}, Expected: test.expected}
			inFarm(t, o, func(t *testing.T, f *farm) {
				began := time.Now()
				f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("a")}).at(repb.ExecutionStage_QUEUED)
				f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("b")}).at(repb.ExecutionStage_QUEUED)
				var both sync.WaitGroup
				both.Go(func() {
					time.Sleep(test.back)
					f.worker("b").idle()
				})
				f.worker("a").idle()
				if took := time.Since(began); took != test.want {
					t.Errorf("the action was given out after %s, want %s", took, test.want)
				}
				both.Wait()
			})
		})
	}
}

// TestPartIsNotKept: while the earlier workers are unknown, the present ones may be a part, and are
// not stored as the complete list.
func TestPartIsNotKept(t *testing.T) {
	r := newRoster(nil, &ServerOptions{})
	r.call(1)
	if here, changed := r.take(); changed {
		t.Errorf("%v is kept", here)
	}
	r.forget()
	if here, changed := r.take(); !changed || !slices.Equal(here, []WorkerSum{1}) {
		t.Errorf("%v is kept after settle (%t)", here, changed)
	}
}

// TestWorkersAreKept: the next scheduler gets the present workers, not those that have left or
// never came back.
func TestWorkersAreKept(t *testing.T) {
	var kept atomic.Value
	o := ServerOptions{
		Config: tuning.Config{Settle: time.Minute}, Expected: []WorkerSum{sumOfHost("gone")},
		KeepWorkers: func(here []WorkerSum) error { kept.Store(here); return nil },
	}
	inFarm(t, o, func(t *testing.T, f *farm) {
		expect := func(when string, hosts ...string) {
			t.Helper()
			time.Sleep(2 * rosterEvery)
			synctest.Wait()
			var want []WorkerSum
			for _, host := range hosts {
				want = append(want, sumOfHost(host))
			}
			slices.Sort(want)
			if got, _ := kept.Load().([]WorkerSum); !slices.Equal(got, want) {
				t.Errorf("%s: %v is kept, want %v", when, got, want)
			}
		}
		w := f.worker("w")
		w.req.PreferBeingIdle = true // its call is not held
		w.req.CurrentState = &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
		if _, err := w.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect("while one is expected", "w", "gone")
		time.Sleep(time.Minute)
		expect("when nobody is")
	})
}
