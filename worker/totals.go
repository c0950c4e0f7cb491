package worker

import (
	"strings"
	"sync/atomic"

	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/live"
)

// totals are sums of prefetch.Figures since the worker's start, in files.
type totals struct{ foreseen, late, missed, local atomic.Int64 }

// count adds the figures of an action.
func (t *totals) count(f prefetch.Figures) {
	t.foreseen.Add(f.Foreseen.Files)
	t.late.Add(f.Late.Files)
	t.missed.Add(f.Missed.Files)
	t.local.Add(f.Local.Files)
}

// Busy reports whether the Worker has actions.
func (w *Worker) Busy() bool { return w.actions.Load() > 0 }

// report has the worker's figures for pages.
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
		FilesForeseen: w.totals.foreseen.Load(), FilesLate: w.totals.late.Load(),
		FilesMissed: w.totals.missed.Load(), FilesLocal: w.totals.local.Load(),
		Resting: w.resting(),
	}
}

// mostReason bounds the text of resting, in bytes.
const mostReason = 500

// resting is why the worker takes no actions now, in one line; empty: it takes some, or stops.
func (w *Worker) resting() string {
	err := w.health.Reason()
	if err == nil {
		return ""
	}
	line := strings.ReplaceAll(err.Error(), "\n", "; ")
	return strings.ToValidUTF8(line[:min(len(line), mostReason)], "?")
}
