package fetch

import (
	"context"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// PrefetchRanges has parts of the large blob d come, behind everything that somebody waits for, and does not wait for
// them. The rest comes after them, once somebody asks for d with another method, Prefetch included; who opens it
// reads the parts as soon as they are there. Parts are never taken for the blob, which is not in the Store before all of
// it has come and was hashed.
//
// What has come is dropped when the caller and all others who asked have left: the caller calls
// release once. Nothing happens if ctx has ended, or d is local, too small to be read while it
// arrives, or on its way in one piece.
func (t *ReadThrough) PrefetchRanges(ctx context.Context, d digest.Digest, parts []span.Span) (release func()) {
	fl := t.askParts(ctx, d, parts)
	if fl == nil {
		return func() {}
	}
	return func() { _, _ = t.leaveBehind(fl) }
}

// askParts joins the flight of d, and starts one of its parts if there is none. It returns nil if they
// cannot come this way.
func (t *ReadThrough) askParts(ctx context.Context, d digest.Digest, parts []span.Span) *flight {
	ranged := t.ranged(d)
	x := t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	if ranged == nil || x.closed || ctx.Err() != nil {
		return nil
	}
	fl := x.inFlight[d]
	switch {
	case fl == nil && t.store.Has(d), fl != nil && fl.batch != nil && fl.arrival == nil:
		return nil
	case fl == nil:
		fl = &flight{digest: d, by: t, behind: true, done: make(chan struct{}), askers: 1, patient: 1}
		behind, _ := t.behind.(cas.RangeFetcher)
		fl.arrival = newArrival(x.store, ranged, behind, d)
		fl.arrival.foresee(parts)
		x.inFlight[d] = fl
		t.startLocked(ctx, []*flight{fl}, t.arrive)
		return fl
	case fl.batch == nil:
		fl.parts = parts // it waits for its turn
	default:
		fl.arrival.foresee(parts)
		fl.batch.askers++
	}
	fl.askers++
	fl.patient++
	return fl
}

// arrivesLocked has all of fl come as an arrival, what is foreseen first.
func (fl *flight) arrivesLocked(a *arrival) {
	fl.arrival = a
	a.foresee(fl.parts)
	a.complete(false)
}
