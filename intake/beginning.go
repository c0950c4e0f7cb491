package intake

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// beginnings limit the memory of new calls that are not charged to a caller yet. On a busy machine
// connections bring calls faster than handlers get to them, and each has headers, a goroutine and a
// window of its request. A connection with one more call is not read until a handler has got to
// one.
type beginnings struct {
	size  int64
	bytes *semaphore.Weighted
	// unread is how much a call can bring before it is read: a window, and gRPC's overhead for
	// small frames.
	unread int64
}

func newBeginnings(b Bounds) *beginnings {
	unread := int64(b.Window) + smallFrameBytes
	size := max(b.Beginnings, callBytes+unread)
	return &beginnings{size, semaphore.NewWeighted(size), unread}
}

// enter waits until there is room for a new call with these headers, and returns its context, which
// counts it until charged is called. gRPC makes the connection wait, too. Handlers make room, and
// none of them needs the connection for that.
func (b *beginnings) enter(ctx context.Context, headers metadata.MD) (*beginning, error) {
	calls := callsFor(headers)
	n := min(calls*callBytes+b.unread, b.size)
	if err := b.bytes.Acquire(ctx, n); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	ctx, end := context.WithCancelCause(ctx)
	return &beginning{
		Context: ctx, end: end, headers: headers, calls: calls, from: originOf(ctx),
		leave: func() { b.bytes.Release(n) },
	}, nil
}

// A beginning is the context of a call over a connection. Until the call has a handler the context
// has no error: gRPC would silently drop a call whose deadline has passed already. All that this
// package keeps of a call is here, so that a look through its contexts is short.
type beginning struct {
	context.Context
	end     context.CancelCauseFunc // it ends with Context anyway
	headers metadata.MD             // not to be changed
	calls   int64                   // as how many it counts, see callsFor
	from    origin
	// receiver is that of a call that is charged to a caller; nil: it is not.
	receiver         *receiver
	handled, charged atomic.Bool
	leave            func()
}

type beginningKey struct{}

// beginningOf returns the beginning of a call; nil: it came from within the process.
func beginningOf(ctx context.Context) *beginning {
	b, _ := ctx.Value(beginningKey{}).(*beginning)
	return b
}

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

// handled records that a call has a handler. It returns an error if the call has ended before.
func handled(ctx context.Context) error {
	if b := beginningOf(ctx); b != nil {
		b.handled.Store(true)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// charged records that a call is charged to a caller, or free. A handler calls it before it waits
// for anything. It may be called again.
func charged(ctx context.Context) {
	if b := beginningOf(ctx); b != nil && !b.charged.Swap(true) {
		b.leave()
	}
}
