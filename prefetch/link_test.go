package prefetch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A link is what calls share that carry blobs: each has an equal part of so many bytes a second.
type link struct {
	bytesPerSecond float64

	mu     sync.Mutex
	under  map[*transfer]struct{} // guarded by mu; those that are under way
	moved  time.Time              // guarded by mu; up to then
	change *time.Timer            // guarded by mu; when the first of them is over
}

// A transfer is guarded by the link's mu, except over.
type transfer struct {
	left float64 // bytes
	over chan struct{}
	// It stands still: its call was cancelled, and what comes nevertheless is lost.
	stopped bool
	steps   int // how often it was stopped, or went on
}

// carry returns when all of t has come, or ctx has ended.
func (l *link) carry(ctx context.Context, t *transfer) {
	select {
	case <-t.over:
	case <-ctx.Done():
		l.update(func() { delete(l.under, t); t.steps++ })
	}
}

// begin begins to carry so many bytes.
func (l *link) begin(bytes int64) *transfer {
	t := &transfer{left: float64(bytes), over: make(chan struct{})}
	l.update(func() { l.under[t] = struct{}{} })
	return t
}

// update moves what is under way on until now, and makes a change.
func (l *link) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	moved := time.Since(l.moved).Seconds() * l.bytesPerSecond / float64(len(l.under))
	l.moved = time.Now()
	for t := range l.under {
		if t.stopped {
			continue
		}
		if t.left -= moved; t.left < 1 {
			delete(l.under, t)
			close(t.over)
		}
	}
	change()
	if l.change != nil {
		l.change.Stop()
	}
	first := -1.0
	for t := range l.under {
		if !t.stopped && (first < 0 || t.left < first) {
			first = t.left
		}
	}
	if first >= 0 {
		wait := first * float64(len(l.under)) / l.bytesPerSecond
		l.change = time.AfterFunc(time.Duration(wait*1e9)+1, func() { l.update(func() {}) })
	}
}

// stop cancels the call of t. For a round trip bytes come that were sent by then.
func (l *link) stop(t *transfer, trip time.Duration) {
	l.step(t, trip, func() bool { t.stopped = true; return true }, func() { delete(l.under, t) })
}

// resume makes another call for the rest of t.
func (l *link) resume(t *transfer, trip time.Duration) {
	l.step(t, trip, func() bool { return t.stopped }, func() { t.stopped = false; l.under[t] = struct{}{} })
}

// step calls later after a round trip, unless now is false or there is another step by then.
func (l *link) step(t *transfer, trip time.Duration, now func() bool, later func()) {
	l.update(func() {
		if _, under := l.under[t]; !under && !t.stopped || !now() {
			return // it is over
		}
		t.steps++
		step := t.steps
		time.AfterFunc(trip, func() {
			l.update(func() {
				if t.steps == step {
					later()
				}
			})
		})
	})
}

// A distant storage is one behind a link. While somebody waits for a blob that is not under way,
// and as long again, prefetched large ones stand still if the Race says so.
type distant struct {
	*storage
	link  link
	trip  time.Duration
	calls map[digest.Digest]*onWay // guarded by storage.mu; under way
	// Guarded by storage.mu.
	yields  bool
	missing int // that somebody waits for
	until   time.Time
}

// onWay is a call that is under way.
type onWay struct {
	over chan struct{}
	// Guarded by storage.mu.
	yields  bool      // it is for a large file that nobody waits for
	carried *transfer // nil: it is not on the link yet
	stopped bool
}

func newDistant(d distance) *distant {
	return &distant{
		storage: newStorage(), trip: d.trip, calls: map[digest.Digest]*onWay{},
		link: link{bytesPerSecond: d.bytesPerSecond, under: map[*transfer]struct{}{}, moved: time.Now()},
	}
}

func (s *distant) PrefetchDirectories(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return s.bring(ctx, ds, false)
}

func (s *distant) Prefetch(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return s.bring(ctx, ds, len(ds) == 1 && ds[0].SizeBytes() > largeBytes)
}

func (s *distant) Yield(yields bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yields = yields
	s.yieldLocked()
}

// yieldLocked stops large files, or has them go on.
func (s *distant) yieldLocked() {
	rest := s.yields && (s.missing > 0 || time.Now().Before(s.until))
	for _, call := range s.calls {
		if call.yields {
			s.stopLocked(call, rest)
		}
	}
}

// stopLocked stops a call, or has it go on.
func (s *distant) stopLocked(call *onWay, stopped bool) {
	switch {
	case call.carried == nil || call.stopped == stopped:
		return
	case stopped:
		s.link.stop(call.carried, s.trip)
	default:
		s.link.resume(call.carried, s.trip)
	}
	call.stopped = stopped
}

// bring fetches in one call what is neither here nor under way, and waits for all of it.
func (s *distant) bring(ctx context.Context, ds []digest.Digest, yields bool) (fetched []digest.Digest, err error) {
	s.mu.Lock()
	j := s.joinLocked(ds, yields)
	s.mu.Unlock()
	return s.complete(ctx, j)
}

// A joint request is one for blobs of which some may be under way.
type joint struct {
	own    *onWay // for those that are neither here nor under way
	ds     []digest.Digest
	others []*onWay
}

// joinLocked begins a request for what is not here. Whether it is under way is decided only here, so
// that it does not matter which of two callers comes first.
func (s *distant) joinLocked(ds []digest.Digest, yields bool) joint {
	j := joint{own: &onWay{over: make(chan struct{}), yields: yields}}
	for _, d := range ds {
		if call := s.calls[d]; call != nil {
			j.others = append(j.others, call)
		} else if !s.local[d] {
			s.calls[d] = j.own
			j.ds = append(j.ds, d)
		}
	}
	return j
}

// complete fetches what j has begun, and waits for all of it.
func (s *distant) complete(ctx context.Context, j joint) (fetched []digest.Digest, err error) {
	if len(j.ds) > 0 {
		select {
		case <-time.After(s.trip):
			s.carry(ctx, j.own, sizes(j.ds))
		case <-ctx.Done():
		}
		s.mu.Lock()
		for _, d := range j.ds {
			s.local[d] = ctx.Err() == nil
			delete(s.calls, d)
		}
		s.mu.Unlock()
		close(j.own.over)
	}
	for _, call := range j.others {
		select {
		case <-call.over:
		case <-ctx.Done():
		}
	}
	return j.ds, ctx.Err()
}

// carry carries the bytes of a call.
func (s *distant) carry(ctx context.Context, call *onWay, bytes int64) {
	s.mu.Lock()
	call.carried = s.link.begin(bytes)
	s.yieldLocked()
	s.mu.Unlock()
	s.link.carry(ctx, call.carried)
}

// need has a blob fetched for somebody who waits, and returns for how long.
func (s *distant) need(t testing.TB, d digest.Digest) time.Duration {
	began := time.Now()
	for !s.has(d) {
		s.mu.Lock()
		j := s.joinLocked([]digest.Digest{d}, false)
		ended := s.waitLocked(j)
		s.mu.Unlock()
		if _, err := s.complete(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		ended()
	}
	return time.Since(began)
}

// waitLocked notes that somebody waits for one blob until ended is called.
func (s *distant) waitLocked(j joint) (ended func()) {
	for _, call := range j.others {
		call.yields = false
		s.stopLocked(call, false)
	}
	if len(j.ds) == 0 {
		return func() {}
	}
	began := time.Now()
	s.missing++
	s.yieldLocked()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.missing--
		again := time.Since(began)
		s.until = time.Now().Add(again)
		time.AfterFunc(again, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.yieldLocked()
		})
	}
}

// TestLinkOfWhatSomebodyWaitsFor: a large file that somebody waits for does not stand still, also if
// none of it was on the link when he came. Others do, while somebody waits for another file.
func TestLinkOfWhatSomebodyWaitsFor(t *testing.T) {
	const alone = 8 << 20 // bytes that take a second, and a trip
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newDistant(distance{roundTrip, alone})
			large, small := fileDigest("large", alone), fileDigest("small", alone)
			var took time.Duration
			var calls sync.WaitGroup
			s.Yield(true)
			calls.Go(func() {
				began := time.Now()
				_, _ = s.Prefetch(t.Context(), []digest.Digest{large})
				took = time.Since(began)
			})
			time.Sleep(roundTrip / 2)
			if waits {
				calls.Go(func() { s.need(t, large) })
			}
			s.need(t, small)
			calls.Wait()
			// Both share the link, or the large one waits for the small one, and as long again.
			if least, most := 2*time.Second, 2*time.Second+4*roundTrip; waits != (took <= most) || took < least {
				t.Errorf("somebody waits: %t, it takes %s", waits, took)
			}
		})
	}
}
