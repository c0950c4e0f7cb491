package worker

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/live"
)

const (
	// tellInterval is how often a worker tells how it fares, if that has changed.
	tellInterval = 15 * time.Second
	// tellTimeout bounds each such call.
	tellTimeout = 10 * time.Second
)

// A fare counts, since the worker's start, files that commands read, those of them that were
// fetched ahead in time, and those that commands waited for.
type fare struct{ read, foreseen, missed atomic.Int64 }

// count adds what an action read, at its end.
func (f *fare) count(a *action) {
	if !a.seesReads() {
		return
	}
	f.read.Add(a.read.FilesRead)
	if a.ahead != nil {
		f.foreseen.Add(a.ahead.outcome.Hits.Files)
		f.missed.Add(a.ahead.outcome.Misses.Files)
	}
}

// Busy reports whether the Worker has actions.
func (w *Worker) Busy() bool { return w.actions.Load() > 0 }

// fares is what people are shown of the worker.
func (w *Worker) fares() *live.Report {
	store := w.opts.Store.Stats()
	var health *live.StoreHealth
	if w.opts.StoreHealth != nil {
		health = w.opts.StoreHealth()
	}
	return &live.Report{
		StoreHealth: health,
		Worker:      &live.Identity{WorkerId: w.positionID(0)}, InstanceNamePrefix: w.opts.InstancePrefix,
		Slots: uint32(len(w.opts.Launchers)), Ahead: uint32(w.opts.FetchWidth + w.opts.ReportWidth),
		StoreBytes: store.Bytes, StoreMaxBytes: store.MaxBytes, StoreBlobs: int64(store.Blobs),
		FilesRead: w.fare.read.Load(), FilesForeseen: w.fare.foreseen.Load(), FilesMissed: w.fare.missed.Load(),
	}
}

// tell tells how the worker fares until ctx ends, or the scheduler does not want to know.
func (l *liveOutputs) tell(ctx context.Context) {
	var told *live.Report
	for {
		pause := tellInterval
		if r := l.fares(); !proto.Equal(r, told) {
			switch err := l.tellOnce(ctx, r); status.Code(err) {
			case codes.OK:
				told = r
			case codes.Unimplemented:
				return
			case codes.FailedPrecondition:
				pause = askInterval // the call of Serve is still under way
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (l *liveOutputs) tellOnce(ctx context.Context, r *live.Report) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	_, err := l.client.Tell(ctx, r)
	return err
}
