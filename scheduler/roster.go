package scheduler

import (
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

// rosterEvery is how often the present workers are saved. If one came later, before the scheduler
// died, the next one does not wait for it; an action that it got in that time may run twice.
const rosterEvery = time.Second

// A WorkerSum is a hash of a worker's key.
type WorkerSum uint64

func sumOfWorker(key string) WorkerSum {
	f := fnv.New64a()
	_, _ = f.Write([]byte(key))
	return WorkerSum(f.Sum64())
}

// A roster knows the present workers, and the earlier ones that have not called yet. When all have
// called, actions are given out, however much of tuning.Config.Settle is left: no other worker
// could have one.
type roster struct {
	engine *engine.Engine
	settle time.Duration
	keep   func([]WorkerSum) error // nil: nothing is kept
	log    *zap.Logger

	mu       sync.Mutex
	here     map[WorkerSum]struct{}
	expected map[WorkerSum]struct{} // nil: not known, or all have called
	changed  bool
	known    bool // false: the earlier workers are unknown, so this may be a part of them
}

func newRoster(e *engine.Engine, o *ServerOptions) *roster {
	r := &roster{engine: e, settle: o.Config.Settle, keep: o.KeepWorkers, log: o.Logger, here: map[WorkerSum]struct{}{}, changed: true, known: o.Expected != nil}
	if o.Expected != nil {
		r.expected = map[WorkerSum]struct{}{}
		for _, sum := range o.Expected {
			r.expected[sum] = struct{}{}
		}
		for _, h := range o.Held {
			r.expected[sumOfWorker(h.Worker)] = struct{}{}
		}
	}
	return r
}

// nobody reports whether it is known that there was no worker before.
func (r *roster) nobody() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expected != nil && len(r.expected) == 0
}

// called records a worker's call.
func (r *roster) called(key string) {
	if r.call(sumOfWorker(key)) {
		r.engine.Feed(event.Settle{})
	}
}

// call reports whether it was the last that was missing.
func (r *roster) call(sum WorkerSum) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.here[sum]; !known {
		r.here[sum] = struct{}{}
		r.changed = true
	}
	if len(r.expected) == 0 {
		return false
	}
	delete(r.expected, sum)
	return len(r.expected) == 0
}

// departed records that a worker is gone.
func (r *roster) departed(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.here, sumOfWorker(key))
	r.changed = true
}

// run saves the present workers until ctx ends, and then once more. Only run calls keep.
func (r *roster) run(ctx context.Context) {
	ticker := time.NewTicker(rosterEvery)
	defer ticker.Stop()
	settled := time.AfterFunc(r.settle, r.forget)
	defer settled.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
		if here, changed := r.take(); changed {
			if err := r.keep(here); err != nil {
				r.log.Warn("cannot save the list of workers: after a restart, actions wait for settle", zap.Error(err))
			}
		}
	}
}

// forget stops waiting for workers.
func (r *roster) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected, r.changed, r.known = nil, true, true
}

// take returns the present and expected workers, if they have changed.
func (r *roster) take() (here []WorkerSum, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.changed || !r.known {
		return nil, false
	}
	r.changed = false
	all := maps.Clone(r.here)
	maps.Copy(all, r.expected)
	return slices.Sorted(maps.Keys(all)), true
}
