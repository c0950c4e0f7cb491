package scratch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// interval is the shortest time between two measurements, and until the first one.
	interval = 500 * time.Millisecond
	// share limits the time for measuring to 1/share of all time.
	share = 20
	// plenty is what the disks must say that a command may still write, which ended before the first
	// measurement, to spare it one. If somebody freed as much at that moment, an excess goes
	// unnoticed: the disk had room for it, and its files go now.
	plenty = 1 << 30
)

// Files are the files of one command.
type Files struct {
	// Most is how many bytes they may take.
	Most int64
	// Named returns how many those with a name take, or more than most.
	Named func(most int64) int64
	// Nameless is Named for open files without a name, which are gone when the command has ended.
	// It stops when ctx ends.
	Nameless func(ctx context.Context, most int64) int64
	// Disks returns the use of the file systems that they are on.
	Disks func() Disks
}

// A Watch measures the files of a command while it runs.
type Watch struct {
	files  Files
	cancel context.CancelFunc
	before Disks // when it began
	first  *time.Timer
	ended  chan bool // gets whether there was too much, if the first measurement began

	named, nameless atomic.Int64 // results of the last measurement
	peak            int64        // before ended
}

// Begin measures files until End, and calls stop when there is too much. A short command has ended
// before anything is measured.
func (f Files) Begin(ctx context.Context, stop func()) *Watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{files: f, cancel: cancel, before: f.Disks(), ended: make(chan bool, 1)}
	w.first = time.AfterFunc(interval, func() { w.ended <- w.run(ctx, stop) })
	return w
}

// End ends the watch when the command has ended, and reports whether there was or is too much, and
// the most bytes that it has seen.
func (w *Watch) End() (peak int64, exceeded bool) {
	w.cancel()
	if w.first.Stop() {
		if w.wroteLittle() {
			return 0, false
		}
	} else if exceeded = <-w.ended; exceeded {
		return w.peak, true
	}
	n := w.files.Named(w.files.Most)
	return max(w.peak, n), n > w.files.Most
}

// wroteLittle reports whether the disks have hardly grown since the watch began.
func (w *Watch) wroteLittle() bool {
	now := w.files.Disks()
	grown := max(now.Used-w.before.Used, 0)
	return now.Prompt && w.before.Prompt && grown <= w.files.Most/part && w.files.Most-grown >= plenty
}

// run measures until ctx ends or there is too much. A command with millions of descriptors makes a
// look at files without names long: it holds up no other.
func (w *Watch) run(ctx context.Context, stop func()) (exceeded bool) {
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	others.Go(func() {
		w.repeat(ctx, func() bool {
			w.nameless.Store(w.files.Nameless(ctx, w.files.Most))
			return false
		})
	})
	w.repeat(ctx, func() bool {
		n := w.files.Named(w.files.Most)
		if most := w.files.Most; n <= most && n+w.nameless.Load() > most {
			n = w.withNameless(ctx)
		}
		w.named.Store(n)
		w.peak = max(w.peak, n)
		exceeded = n > w.files.Most
		return exceeded
	})
	if exceeded {
		stop()
	}
	return exceeded
}

// withNameless measures all files. One that gets a name meanwhile, or loses it, does not count
// twice.
func (w *Watch) withNameless(ctx context.Context) int64 {
	before := w.files.Nameless(ctx, w.files.Most)
	n := w.files.Named(w.files.Most)
	return n + min(before, w.files.Nameless(ctx, w.files.Most))
}

// left is how many more bytes there may be than were measured.
func (w *Watch) left() int64 { return w.files.Most - w.named.Load() - w.nameless.Load() }

// repeat measures whenever it is due, until ctx ends or measure returns true.
func (w *Watch) repeat(ctx context.Context, measure func() (enough bool)) {
	var p pace
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for ctx.Err() == nil {
		if began := time.Now(); p.due(began, w.files.Most, w.left(), w.files.Disks()) {
			if measure() {
				return
			}
			p.measured(began)
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}
