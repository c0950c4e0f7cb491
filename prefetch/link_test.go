package prefetch

import (
	"context"
	"sync"
	"testing"
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

type transfer struct {
	left float64 // bytes
	over chan struct{}
}

// carry returns when so many bytes have come, or ctx has ended.
func (l *link) carry(ctx context.Context, bytes int64) {
	t := &transfer{left: float64(bytes), over: make(chan struct{})}
	l.update(func() { l.under[t] = struct{}{} })
	select {
	case <-t.over:
	case <-ctx.Done():
		l.update(func() { delete(l.under, t) })
	}
}

// update moves what is under way on until now, and makes a change.
func (l *link) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	moved := time.Since(l.moved).Seconds() * l.bytesPerSecond / float64(len(l.under))
	l.moved = time.Now()
	for t := range l.under {
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
		if first < 0 || t.left < first {
			first = t.left
		}
	}
	if first >= 0 {
		wait := first * float64(len(l.under)) / l.bytesPerSecond
		l.change = time.AfterFunc(time.Duration(wait*1e9)+1, func() { l.update(func() {}) })
	}
}

// A distant storage is one behind a link.
type distant struct {
	*storage
	link  link
	trip  time.Duration
	calls map[digest.Digest]chan struct{} // guarded by storage.mu; under way
}

func newDistant(trip time.Duration, bytesPerSecond float64) *distant {
	return &distant{
		storage: newStorage(), trip: trip, calls: map[digest.Digest]chan struct{}{},
		link: link{bytesPerSecond: bytesPerSecond, under: map[*transfer]struct{}{}, moved: time.Now()},
	}
}

func (s *distant) PrefetchDirectories(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return s.bring(ctx, ds)
}

func (s *distant) Prefetch(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return s.bring(ctx, ds)
}

// bring fetches in one call what is neither here nor under way, and waits for all of it.
func (s *distant) bring(ctx context.Context, ds []digest.Digest) (fetched []digest.Digest, err error) {
	over := make(chan struct{})
	var others []chan struct{}
	var bytes int64
	s.mu.Lock()
	for _, d := range ds {
		if call := s.calls[d]; call != nil {
			others = append(others, call)
		} else if !s.local[d] {
			s.calls[d] = over
			fetched = append(fetched, d)
			bytes += d.SizeBytes()
		}
	}
	s.mu.Unlock()
	if len(fetched) > 0 {
		select {
		case <-time.After(s.trip):
			s.link.carry(ctx, bytes)
		case <-ctx.Done():
		}
		s.mu.Lock()
		for _, d := range fetched {
			s.local[d] = ctx.Err() == nil
			delete(s.calls, d)
		}
		s.mu.Unlock()
		close(over)
	}
	for _, call := range others {
		select {
		case <-call:
		case <-ctx.Done():
		}
	}
	return fetched, ctx.Err()
}

// need has a blob fetched for somebody who waits, and returns for how long.
func (s *distant) need(t testing.TB, d digest.Digest) time.Duration {
	began := time.Now()
	for !s.has(d) {
		if _, err := s.bring(t.Context(), []digest.Digest{d}); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began)
}
