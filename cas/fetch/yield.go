package fetch

import (
	"context"
	"io"
	"time"

	"github.com/forerunner-build/forerunner/cas"
)

// Yield sets whether large blobs of Prefetch stand still while a caller of t waits for a blob that
// was not prefetched, and as long again, a second at most: their calls end, and others continue
// where they were. At first they do not. A blob that another caller than Prefetch asks for does not
// stand still.
func (t *ReadThrough) Yield(yields bool) {
	x := t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	t.yielding.on = yields
	t.yielding.changeLocked()
}

// longestStop bounds how long prefetches stand still when no caller waits any more.
const longestStop = time.Second

// A yielding has for whom the prefetches of a ReadThrough stand still. flights.mu guards it.
type yielding struct {
	on      bool
	missed  int           // flights that have not ended, and began for a caller that waits
	until   time.Time     // when the last of them has ended as long ago as it took, or longestStop
	changed chan struct{} // closed at the next change; nil if no goroutine waits
}

// beganLocked notes that fl begins for a caller that waits.
func (y *yielding) beganLocked(fl *flight) {
	fl.missedAt = time.Now()
	y.missed++
}

// endedLocked notes the end of fl.
func (fl *flight) endedLocked() {
	if fl.missedAt.IsZero() {
		return
	}
	now, y := time.Now(), &fl.by.yielding
	if until := now.Add(min(now.Sub(fl.missedAt), longestStop)); until.After(y.until) {
		y.until = until
	}
	fl.missedAt = time.Time{}
	y.missed--
	y.changeLocked()
}

// changeLocked wakes the goroutines that wait for a change.
func (y *yielding) changeLocked() {
	if y.changed != nil {
		close(y.changed)
		y.changed = nil
	}
}

// A stop is until when a prefetch stands still. The zero stop is not at all.
type stop struct {
	changed <-chan struct{} // closed when it may be over
	most    time.Duration   // if positive, it is over then
}

// stops reports whether the prefetch stands still now.
func (s stop) stops() bool { return s.changed != nil }

// timer returns a channel that receives when s is over, unless that depends on others. The caller
// calls end.
func (s stop) timer() (over <-chan time.Time, end func()) {
	if s.most <= 0 {
		return nil, func() {}
	}
	timer := time.NewTimer(s.most)
	return timer.C, func() { timer.Stop() }
}

// wait returns when s may be over, or ctx has ended.
func (s stop) wait(ctx context.Context) {
	most, end := s.timer()
	defer end()
	select {
	case <-s.changed:
	case <-most:
	case <-ctx.Done():
	}
}

// stopOf returns until when fl, which is prefetched, stands still.
func (x *shared) stopOf(fl *flight) stop {
	x.mu.Lock()
	defer x.mu.Unlock()
	return fl.stopLocked()
}

// stopLocked is stopOf.
func (fl *flight) stopLocked() stop {
	y := &fl.by.yielding
	if !y.on || fl.askers != fl.patient {
		return stop{}
	}
	s := stop{}
	if y.missed == 0 {
		if s.most = time.Until(y.until); s.most <= 0 {
			return stop{}
		}
	}
	if y.changed == nil {
		y.changed = make(chan struct{})
	}
	s.changed = y.changed
	return s
}

// hasBegunLocked reports whether some of fl has come or is on its way: it does not stand still since
// it began.
func (fl *flight) hasBegunLocked() bool {
	return fl.arrival == nil || fl.by == nil || !fl.stopLocked().stops() || fl.arrival.hasBegun()
}

// hasBegun reports whether some of a has come or is on its way.
func (a *arrival) hasBegun() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.have)+len(a.streams) > 0
}

// A yieldingReader has the bytes of a prefetched blob.
type yieldingReader struct {
	ctx  context.Context
	x    *shared
	fl   *flight
	from io.Reader
}

func (r *yieldingReader) Read(p []byte) (int, error) {
	for {
		s := r.x.stopOf(r.fl)
		if !s.stops() {
			return r.from.Read(p)
		}
		if from, ok := r.from.(cas.Pauser); ok {
			from.Pause()
		}
		if s.wait(r.ctx); r.ctx.Err() != nil {
			return 0, context.Cause(r.ctx)
		}
	}
}

// yieldsLocked has the rest of fl, which is an arrival, stand still like other prefetches.
func (fl *flight) yieldsLocked() {
	x := fl.by.shared
	fl.arrival.stop = func() stop { return x.stopOf(fl) }
}
