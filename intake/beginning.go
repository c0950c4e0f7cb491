package intake

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/status"
)

// beginnings bound what calls take that have come and are not charged to anybody yet. On a busy machine connections bring calls faster
// than handlers get to them, and each has headers, a goroutine and a window of its request. A connection that brings one more
// is not read until a handler has got to one.
type beginnings struct {
	size  int64
	bytes *semaphore.Weighted
	// unread is what a call can bring before it is read: a window, and what gRPC has small frames take beside their bytes.
	unread int64
}

func newBeginnings(b Bounds) *beginnings {
	unread := int64(b.Window) + smallFrameBytes
	size := max(b.Beginnings, callBytes+unread)
	return &beginnings{size, semaphore.NewWeighted(size), unread}
}

// enter waits until there is room for a call that begins, and returns its context, which counts it until charged is called. gRPC has
// its connection wait, too. What makes room are handlers, of which none needs the connection for that.
func (b *beginnings) enter(ctx context.Context) (context.Context, error) {
	n := min(callsOf(ctx)*callBytes+b.unread, b.size)
	if err := b.bytes.Acquire(ctx, n); err != nil {
		return ctx, status.FromContextError(err).Err()
	}
	return &beginning{Context: ctx, leave: func() { b.bytes.Release(n) }}, nil
}

// A beginning is the context of a call that may not have a handler yet. Until then it has no error: gRPC would drop a call whose time
// is over already, and tell nobody.
type beginning struct {
	context.Context
	handled, charged atomic.Bool
	leave            func()
}

type beginningKey struct{}

// Value implements context.Context.
func (b *beginning) Value(key any) any {
	if key == (beginningKey{}) {
		return b
	}
	return b.Context.Value(key)
}

// Err implements context.Context.
func (b *beginning) Err() error {
	if !b.handled.Load() {
		return nil
	}
	return b.Context.Err()
}

// handled says that a call has a handler. An error: it has ended before.
func handled(ctx context.Context) error {
	if b, ok := ctx.Value(beginningKey{}).(*beginning); ok {
		b.handled.Store(true)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// charged says that what a call takes is charged to somebody, or free. A handler calls it before it waits for anything. It may be called
// again.
func charged(ctx context.Context) {
	if b, ok := ctx.Value(beginningKey{}).(*beginning); ok && !b.charged.Swap(true) {
		b.leave()
	}
}
