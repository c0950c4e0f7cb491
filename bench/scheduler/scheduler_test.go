package scheduler

import (
	"context"
	"slices"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/storage"
)

func TestJain(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3, 3, 3}, 1},
		{[]float64{0, 0, 7, 0}, 0.25},
		{[]float64{1, 2, 3}, 36.0 / 42},
	} {
		if got := jain(test.values); got != test.want {
			t.Errorf("jain(%v) is %v, want %v", test.values, got, test.want)
		}
	}
}

// TestVirtualFarm checks that a farm makes one decision for each end of an action, and that the
// number of queued actions stays the same.
func TestVirtualFarm(t *testing.T) {
	const workers, rests, queued, steps = 7, 2, 20, 100
	f, err := newVirtualFarm(workers, 1)
	if err != nil {
		t.Fatal(err)
	}
	metadata := invocations(3)
	for i := range workers + queued + steps {
		op := f.operation(metadata[i%3], "")
		if i >= workers+queued {
			f.spare = append(f.spare, op)
		} else if err := f.submit(op); err != nil {
			t.Fatal(err)
		}
	}
	f.rests = rests
	if err := f.steps(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	if c := f.state.View().Counts(); c.Queued != queued+rests || c.Busy != workers-rests || f.decisions != workers+steps-rests {
		t.Errorf("%+v after %d decisions", c, f.decisions)
	}
}

// TestAbandon checks that all operations of a farm without workers end, over several events.
func TestAbandon(t *testing.T) {
	f, err := newVirtualFarm(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	h, err := f.abandon(t.Context(), 5000)
	if err != nil || h.events < 5 || h.worst > h.all {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestLoad checks that clients and workers of the gRPC benchmark exchange actions, and that a
// hanging worker leaves the other actions queued.
func TestLoad(t *testing.T) {
	const actions = 30
	l, err := load.New(2*actions, 100)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address := make(chan string, 1)
	s := farm.Scheduler{Listen: "127.0.0.1:0", Data: t.TempDir(), Storage: storage.Settings{CacheSize: "1G"}, Logger: zap.NewNop()}
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() {
		if err := s.Run(ctx, ctx, func(a string) error { address <- a; return nil }); err != nil {
			t.Error(err)
		}
	})
	conns, closeConns, err := load.Connect(<-address, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop() // or calls would fail because the connections end
		_ = closeConns()
	}()
	if err := l.Upload(ctx, conns[0]); err != nil {
		t.Fatal(err)
	}
	working, rest := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for i, c := range conns {
		workers.Go(func() {
			if err := l.Work(working, c, i); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := l.Run(ctx, conns, 0, actions); err != nil {
		t.Fatal(err)
	}
	if ms := l.Latencies(0, actions); slices.Min(ms) <= 0 {
		t.Errorf("an action was begun before it was asked for: %v ms", ms)
	}
	rest()
	workers.Wait()
	all.Go(func() {
		if err := l.Hang(ctx, conns[0]); err != nil {
			t.Error(err)
		}
	})
	if err := l.Queue(ctx, conns, actions, 2*actions); err != nil {
		t.Fatal(err)
	}
}

// TestGRPCRows checks that the rows of a cell are those that --only accepts.
func TestGRPCRows(t *testing.T) {
	for _, c := range busyCells() {
		var names []string
		for _, r := range c.rows([]busySample{{1, 2, 3, 4}}) {
			names = append(names, r.Name)
		}
		if !slices.Equal(names, c.names()) {
			t.Errorf("rows %q, want %q", names, c.names())
		}
	}
}
