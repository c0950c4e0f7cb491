package fetch

import (
	"context"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxGathering is how many calls of Fetch for gathered blobs a ReadThrough has in flight. With one,
// the next caller would wait up to a round trip more than its own; with many, nothing would be
// gathered.
const maxGathering = 4

// gathered reports whether d, requested alone, may wait for other blobs.
func gathered(d digest.Digest) bool { return d.SizeBytes() <= cas.StreamAbove }

// queueLocked lets fl wait for the next call, which is now while fewer than maxGathering are in
// flight.
func (t *ReadThrough) queueLocked(ctx context.Context, fl *flight) {
	t.queue = append(t.queue, fl)
	if t.gathering == maxGathering {
		return
	}
	t.gathering++
	ctx = context.WithoutCancel(ctx)
	t.running.Go(func() { t.gather(ctx) })
}

// gather fetches queued blobs, one call after another, until the queue is empty.
func (t *ReadThrough) gather(ctx context.Context) {
	for t.gatherOnce(ctx) {
	}
}

func (t *ReadThrough) gatherOnce(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := t.take(cancel)
	if b == nil {
		return false
	}
	t.run(ctx, b)
	return true
}

// take makes a batch of those that have waited longest, as many as fit in one message, and adds
// some prefetched ones. Without any of the former it returns nil, and the caller is no longer
// counted.
func (t *ReadThrough) take(cancel context.CancelFunc) *batch {
	x := t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	left := space{blobs: cas.MaxBatchBlobs, bytes: cas.BatchBytes}
	flights, rest := takeLocked(t.queue, false, 1, &left)
	t.queue = rest
	if len(flights) == 0 {
		t.queue = nil
		t.gathering--
		return nil
	}
	left = space{blobs: min(left.blobs, maxExtra), bytes: min(left.bytes, extraBytes)}
	flights = append(flights, t.extraLocked(&left)...)
	if x.closed {
		cancel()
	}
	return boardLocked(flights, cancel)
}

// space is the remaining space of a call.
type space struct {
	blobs int
	bytes int64
}

// takeLocked takes flights from the front of queue until a call is full, and at least least
// flights. behind says whether queue has low priority. It skips flights without callers, flights
// that have moved to the other queue, and flights that have ended.
func takeLocked(queue []*flight, behind bool, least int, left *space) (taken, rest []*flight) {
	n := 0
	for ; n < len(queue) && left.blobs > 0; n++ {
		fl := queue[n]
		if !fl.waitsLocked(behind) {
			continue
		}
		need := fl.digest.SizeBytes() + cas.EntryOverhead
		if len(taken) >= least && need > left.bytes {
			break
		}
		left.bytes -= need
		left.blobs--
		taken = append(taken, fl)
	}
	clear(queue[:n])
	return taken, queue[n:]
}
