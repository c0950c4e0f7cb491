package worker

import (
	"sync/atomic"

	"github.com/forerunner-build/forerunner/proto/live"
)

// totals count, since the worker's start, files that commands read, those of them that were
// fetched ahead in time, and those that commands waited for.
type totals struct{ read, foreseen, missed atomic.Int64 }

// count adds what an action read, at its end.
func (t *totals) count(a *action) {
	if !a.seesReads() {
		return
	}
	t.read.Add(a.last.read.FilesRead)
	o := a.ahead.Outcome()
	t.foreseen.Add(o.Hits.Files)
	t.missed.Add(o.Misses.Files)
}

// Busy reports whether the Worker has actions.
func (w *Worker) Busy() bool { return w.actions.Load() > 0 }

// report is what people are shown of the worker.
func (w *Worker) report() *live.Report {
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
		FilesRead: w.totals.read.Load(), FilesForeseen: w.totals.foreseen.Load(), FilesMissed: w.totals.missed.Load(),
	}
}
