package fetch

import (
	"context"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// PrefetchRanges fetches parts of the large blob d, behind all waiting callers, without waiting. A
// few parts are fetched at a time, for all arrivals of the Group. The rest is fetched when a caller
// asks for d with another method: for Prefetch after the parts and in its turn, for other methods
// at once. A caller that opens d can read the parts as soon as they have arrived. Parts never count
// as the blob: the Store has the blob only when all bytes have arrived and were hashed.
//
// The parts are dropped when the caller and all others have left. The caller must call release
// once. PrefetchRanges does nothing if ctx has ended, or if d is local, too small to be read while
// it arrives, or being fetched in one piece.
func (t *ReadThrough) PrefetchRanges(ctx context.Context, d digest.Digest, parts []span.Span) (release func()) {
	fl := t.askParts(ctx, d, parts)
	if fl == nil {
		return func() {}
	}
	return func() { t.leaveParts(fl) }
}

// askParts joins the flight of d, and starts one of its parts if there is none that has begun. It
// returns nil if they cannot come this way.
func (t *ReadThrough) askParts(ctx context.Context, d digest.Digest, parts []span.Span) *flight {
	x := t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	if t.ranged(d) == nil || gathered(d) || x.closed || ctx.Err() != nil {
		return nil
	}
	fl := x.inFlight[d]
	switch {
	case fl == nil && t.store.Has(d), fl != nil && fl.batch != nil && fl.arrival == nil:
		return nil
	case fl == nil:
		fl = &flight{digest: d, by: t, behind: true, done: make(chan struct{})}
		x.inFlight[d] = fl
	case fl.batch == nil && fl.by.ranged(d) == nil:
		return nil
	case fl.batch == nil:
		fl.rest = restQueued // it waits for its turn, for which the parts do not wait
	}
	fl.askers++
	fl.patient++
	fl.partial++
	if fl.batch != nil {
		fl.batch.askers++
		fl.arrival.foresee(parts)
		return fl
	}
	fl.arrival = fl.by.newArrival(d)
	fl.yieldsLocked()
	fl.arrival.foresee(parts)
	fl.by.startLocked(ctx, []*flight{fl}, fl.by.arrive)
	return fl
}

// leaveParts is leaveBehind for PrefetchRanges.
func (x *shared) leaveParts(fl *flight) {
	x.mu.Lock()
	fl.partial--
	fl.patient--
	act := x.leftLocked(fl)
	x.mu.Unlock()
	act()
}
