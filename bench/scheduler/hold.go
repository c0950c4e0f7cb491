package scheduler

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// holdNames are the rows of benchHolds.
func holdNames() []string { return []string{"worst_hold_ms_1e6"} }

// benchHolds measures how long an event takes at most while all workers of a large farm are lost, and then all that waits fails: so
// long the scheduler's lock is held.
func benchHolds(ctx context.Context, o *report.Options) ([]report.Row, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var worst []float64
	var last holds
	for i := range o.Runs {
		report.Progress("run %d of %d: all workers leave %d operations", i+1, o.Runs, manyQueued)
		f, err := newVirtualFarm(virtualWorkers)
		if err != nil {
			return nil, err
		}
		if last, err = f.abandon(ctx, manyQueued); err != nil {
			return nil, err
		}
		worst = append(worst, last.worst.Seconds()*1e3)
	}
	row := report.NewRow(holdNames()[0], report.Median(worst), "ms")
	row.Wanted = "< 20"
	row.Note = fmt.Sprintf("%s; %d events for what became of 1,000,000 operations when all 10,000 workers were lost, %s together",
		report.Spread(worst), last.events, last.all.Round(time.Millisecond))
	return []report.Row{row}, nil
}

// holds are how long events took: the worst one, and all.
type holds struct {
	events     int
	worst, all time.Duration
}

// abandon has so many operations wait, and no worker call any more, until all have failed.
func (f *virtualFarm) abandon(ctx context.Context, queued int) (h holds, err error) {
	metadata, left := invocations(virtualInvocations), len(f.workers)+queued
	for i := range left {
		if err := f.submit(f.operation(metadata[i%len(metadata)], fmt.Sprintf("team-%02d", i%20))); err != nil {
			return h, err
		}
	}
	runtime.GC()
	for left > 0 {
		if f.tick.IsZero() || ctx.Err() != nil {
			return h, fmt.Errorf("%d operations never end: %w", left, context.Cause(ctx))
		}
		if f.tick.After(f.now) {
			f.now = f.tick
		}
		start := time.Now()
		out := f.state.Step(f.now, event.Tick{})
		took := time.Since(start)
		h.events, h.all, h.worst = h.events+1, h.all+took, max(h.worst, took)
		f.tick = out.NextTick
		for _, st := range out.Notices {
			if st.Done() {
				left--
			}
		}
	}
	return h, nil
}
