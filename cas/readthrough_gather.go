package cas

import (
	"context"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxGathering is how many calls of Fetch for gathered blobs a ReadThrough has in
// flight. One would make whoever comes next wait up to a round trip more than its
// own; many would leave nothing to gather.
const maxGathering = 4

// gathered reports whether d, asked for alone, may wait for others to go with.
func gathered(d digest.Digest) bool { return d.SizeBytes() <= streamAbove }

// queueLocked lets fl wait for the next call, which is now while fewer than
// maxGathering are in flight.
func (t *ReadThrough) queueLocked(ctx context.Context, fl *flight) {
	t.queue = append(t.queue, fl)
	if t.gathering == maxGathering {
		return
	}
	t.gathering++
	ctx = context.WithoutCancel(ctx)
	t.store.fetches.running.Go(func() { t.gather(ctx) })
}

// gather brings what is queued, one call after another, until nothing is left.
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

// take makes a batch of those that wait longest, as many as go in one message.
// Without any it returns nil, and the caller is no longer counted.
func (t *ReadThrough) take(cancel context.CancelFunc) *batch {
	x := &t.store.fetches
	x.mu.Lock()
	defer x.mu.Unlock()
	var flights []*flight
	left := int64(batchBytes)
	n := 0
	for ; n < len(t.queue) && len(flights) < maxBlobsPerBatch; n++ {
		fl := t.queue[n]
		if fl.askers == 0 {
			continue // all have left while it waited
		}
		need := fl.digest.SizeBytes() + entryOverhead
		if len(flights) > 0 && need > left {
			break
		}
		left -= need
		flights = append(flights, fl)
	}
	clear(t.queue[:n])
	t.queue = t.queue[n:]
	if len(flights) == 0 {
		t.queue = nil
		t.gathering--
		return nil
	}
	if x.closed {
		cancel()
	}
	return boardLocked(flights, cancel)
}
