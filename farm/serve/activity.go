package serve

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
)

const (
	// quietFor is how long no client may have called before a draining farm closes its storage:
	// clients fetch outputs after a result.
	quietFor = time.Second
	// quietWithin bounds the wait for that.
	quietWithin = 10 * time.Second
)

// An Activity knows when a client last called.
type Activity struct {
	mu       sync.Mutex
	inFlight int // calls that move blobs
	last     time.Time
	blobs    int // the calls that read or write blobs
	moved    time.Time
}

// begin counts a call and returns a function that ends it. A worker's calls do not count, and an
// Execute counts when it ends, because it may wait forever.
func (a *Activity) begin(method string) (end func()) {
	if strings.HasPrefix(method, "/buildbarn.remoteworker.") || strings.HasPrefix(method, "/forerunner.live.") {
		return func() {}
	}
	moves, blobs := 1, 0
	if strings.Contains(method, ".Execution/") {
		moves = 0
	}
	if strings.Contains(method, ".ContentAddressableStorage/") || strings.Contains(method, ".ByteStream/") {
		blobs = 1
	}
	a.add(moves, blobs)
	return func() { a.add(-moves, -blobs) }
}

func (a *Activity) add(moves, blobs int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight += moves
	a.last = time.Now()
	if a.blobs += blobs; blobs != 0 {
		a.moved = a.last
	}
}

// MovesBlobs reports whether a client reads or writes blobs, or did within the last second.
func (a *Activity) MovesBlobs() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.blobs > 0 || time.Since(a.moved) < quietFor
}

// busyFor returns how long to wait before asking again; 0 means that all is quiet.
func (a *Activity) busyFor() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inFlight > 0 {
		return quietFor
	}
	return max(0, time.Until(a.last.Add(quietFor)))
}

// WaitQuiet waits until clients have been quiet for a while, abort ends, or time is up.
func (a *Activity) WaitQuiet(abort context.Context) {
	ctx, cancel := context.WithTimeout(abort, quietWithin)
	defer cancel()
	for {
		wait := a.busyFor()
		if wait == 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (a *Activity) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	defer a.begin(info.FullMethod)()
	return handler(ctx, req)
}

func (a *Activity) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	defer a.begin(info.FullMethod)()
	return handler(srv, stream)
}
