package scheduler

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// holdNames returns the rows of benchHolds.
func holdNames() []string { return []string{"worst_hold_ms_1e6"} }

// heldPositions is the number of positions of each worker in this measurement: those of two slots.
const heldPositions = 4

// benchHolds measures the longest CPU time of an event when a large farm gets many operations, is
// drained, undrained and loses all workers, and all waiting operations fail. If a CPU is free, the
// scheduler holds its lock for this long. The garbage collector may use the other CPUs.
func benchHolds(ctx context.Context, o *report.Options) ([]report.Row, error) {
	var worst []float64
	var last holds
	for i := range o.Runs {
		report.Progress("run %d of %d: all workers leave %d operations", i+1, o.Runs, manyQueued)
		f, err := newVirtualFarm(virtualWorkers, heldPositions)
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
	row.Note = fmt.Sprintf("of CPU, %s, by %s; %d events until 1,000,000 operations were queued and had failed after all 10,000 workers "+
		"(40,000 positions) were drained, undrained and lost, %s together, the longest %s by the clock", report.Spread(worst), last.by,
		last.events, last.all.Round(time.Millisecond), last.longest.Round(10*time.Microsecond))
	return []report.Row{row}, nil
}

// holds are the CPU times of events: the worst one, with its name in by, and the sum. longest is
// the longest elapsed time.
type holds struct {
	events              int
	by                  string
	worst, all, longest time.Duration
}

// abandon queues operations, drains and undrains all workers, and stops all calls of workers, until
// all operations have failed.
func (f *virtualFarm) abandon(ctx context.Context, queued int) (h holds, err error) {
	runtime.LockOSThread() // threadTime measures this thread
	defer runtime.UnlockOSThread()
	metadata, left := invocations(virtualInvocations), len(f.workers)+queued
	for i := range left {
		op := f.operation(metadata[i%len(metadata)], fmt.Sprintf("team-%02d", i%20))
		out := h.step(f, "a submission", event.Submit{Operation: op.Operation})
		if f.do(out); out.Err != nil {
			return h, out.Err
		}
	}
	all, err := pattern.Parse(names.HostKey + "=*")
	if err != nil {
		return h, err
	}
	runtime.GC()
	for _, order := range []struct {
		name string
		event.Event
	}{
		{"the drain", core.Drain{Record: drain.Record{Pattern: all}}}, {"the undrain", core.Undrain{Pattern: all}},
	} {
		for h.step(f, order.name, order.Event); !f.tick.IsZero() && !f.tick.After(f.now); h.step(f, order.name, event.Tick{}) {
		}
	}
	for left > 0 {
		if f.tick.IsZero() || ctx.Err() != nil {
			return h, fmt.Errorf("%d operations never end: %w", left, context.Cause(ctx))
		}
		if f.tick.After(f.now) {
			f.now = f.tick
		}
		what := "the loss"
		if left < len(f.workers)+queued {
			what = "the failures"
		}
		for _, st := range h.step(f, what, event.Tick{}).Notices {
			if st.Done() {
				left--
			}
		}
	}
	return h, nil
}

// step applies and measures an event of the kind what.
func (h *holds) step(f *virtualFarm, what string, e event.Event) event.Out {
	start, used := time.Now(), threadTime()
	out := f.state.Step(f.now, e)
	used = threadTime() - used
	h.events, h.all, h.longest = h.events+1, h.all+used, max(h.longest, time.Since(start))
	if used > h.worst {
		h.worst, h.by = used, what
	}
	f.tick = out.NextTick
	return out
}

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // Linux always has this clock
	}
	return time.Duration(t.Nano())
}
