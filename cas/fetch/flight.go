package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// flights are a Group's fetches from upstream in progress: at most one per digest, for all callers
// and ReadThroughs. Flights that were requested together, or were gathered, share a batch, which is
// one call of Fetch. mu is held without I/O and before the store's own.
type flights struct {
	mu       sync.Mutex
	inFlight map[digest.Digest]*flight // guarded by mu
	queues   [queueKinds]queue         // guarded by mu
	closed   bool                      // guarded by mu
	running  sync.WaitGroup            // batches; Close waits for it
}

// A flight is the fetch of one blob. It ends with the blob in the store and pinned for its callers,
// or with an error, which the next caller does not get.
type flight struct {
	digest digest.Digest
	done   chan struct{} // closed when the flight has ended
	err    error         // how it ended; set with ended and before done is closed
	// These are guarded by flights.mu while batch is nil, and do not change then.
	by *ReadThrough
	// behind: Prefetch asked for it, and no other caller did before it had a batch.
	behind bool
	// arrival is the arriving blob; nil if it can be read only when complete.
	arrival *arrival
	// flights.mu guards the following.
	batch   *batch // nil while the flight waits in by.queue or one of by.backlogs
	rest    rest   // of an arrival
	ended   bool
	pinned  bool // the blob is pinned until only patient askers are left
	askers  int
	patient int // askers that are calls of Prefetch or PrefetchRanges
	// prefetching is the call of Prefetch that returns the blob: the one that began the flight. If
	// none did, or that call left before the end, it is nil until one that could have begun it
	// leaves after the end.
	prefetching *prefetching
	// claimed: another caller asked for it before any of it was on its way. No Prefetch returns it.
	claimed bool
	// When it began for a caller that waits; zero if Prefetch asked for it first, and after its end.
	missedAt time.Time
	partial  int // askers that are calls of PrefetchRanges
}

// A rest is whether the unpredicted parts of an arrival are fetched.
type rest uint8

const (
	restUnwanted rest = iota // no caller needs it
	restQueued               // it waits for its turn in one of by.backlogs
	restComes
)

// completeLocked fetches all of fl, which is an arrival.
func (fl *flight) completeLocked(waits bool) {
	fl.rest = restComes
	fl.arrival.complete(waits)
}

// waitsLocked reports whether fl, which is taken out of a queue, still waits there.
func (fl *flight) waitsLocked(behind bool) bool {
	if fl.rest == restQueued && fl.askers == fl.partial {
		fl.rest = restUnwanted // its callers have left
	}
	return fl.rest == restQueued || fl.askers > 0 && fl.batch == nil && fl.behind == behind
}

// A batch is one call of Fetch.
type batch struct {
	cancel context.CancelFunc
	// These are fixed when the batch starts.
	digests []digest.Digest
	flights map[digest.Digest]*flight
	// flights.mu guards the following.
	open      int             // flights that have not ended
	askers    int             // of those
	abandoned bool            // no caller waited for any of them: cancelled
	wanted    []digest.Digest // for which callers began to wait; delivery removes them
}

// Results of ask.
type asked struct {
	flights []*flight       // those that the caller has joined, and must leave
	present []digest.Digest // those already in the store
	was     cas.Presence    // of the least present
}

// ask joins the flights of ds, and starts fetches of those without one, or whose fetch waits
// behind: a single small blob with others of its kind, otherwise all in one batch. Blobs that have
// arrived in the store by now get none. ds has no digest twice.
func (t *ReadThrough) ask(ctx context.Context, ds []digest.Digest) (a asked, err error) {
	x := t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return a, fs.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return a, context.Cause(ctx)
	}
	var fresh, arriving []*flight
	for _, d := range ds {
		fl := x.inFlight[d]
		waits := fl != nil && fl.behind && fl.batch == nil
		if fl == nil {
			// A blob is in the store before its flight ends, so without a flight this answer is
			// final.
			if t.store.Has(d) {
				a.present = append(a.present, d)
				continue
			}
			fl = &flight{digest: d, done: make(chan struct{})}
			x.inFlight[d] = fl
			t.yielding.beganLocked(fl)
		}
		if fl.behind {
			fl.by.yielding.changeLocked() // it must not stand still
		}
		if fl.by == nil || waits {
			// Its place in the queue of Prefetch is void.
			fl.by, fl.behind = t, false
			a.was = cas.Absent
			if t.ranged(d) != nil {
				fl.arrival = t.newArrival(d)
				arriving = append(arriving, fl)
			} else {
				fresh = append(fresh, fl)
			}
		}
		if !fl.hasBegunLocked() {
			fl.claimed = true
			a.was = cas.Absent
		}
		if fl.arrival != nil {
			fl.completeLocked(true)
		}
		a.was = max(a.was, cas.OnItsWay)
		fl.askers++
		if fl.batch != nil {
			fl.batch.askers++
			fl.batch.wanted = append(fl.batch.wanted, d)
		}
		a.flights = append(a.flights, fl)
	}
	switch {
	case len(fresh) == 0:
	case len(ds) == 1 && gathered(fresh[0].digest):
		t.queueLocked(ctx, fresh[0])
	default:
		t.startLocked(ctx, fresh, t.run)
	}
	for _, fl := range arriving {
		t.startLocked(ctx, []*flight{fl}, t.arrive)
	}
	return a, nil
}

// startLocked starts a batch of its own for flights. Other callers may join them, so it does not
// end with the context of the caller.
func (t *ReadThrough) startLocked(
	ctx context.Context, flights []*flight, run func(context.Context, *batch),
) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := boardLocked(flights, cancel)
	t.running.Go(func() {
		defer cancel()
		run(ctx, b)
	})
}

// boardLocked makes a batch of flights that have none.
func boardLocked(flights []*flight, cancel context.CancelFunc) *batch {
	b := &batch{cancel: cancel, flights: make(map[digest.Digest]*flight, len(flights)), open: len(flights)}
	for _, fl := range flights {
		fl.batch = b
		b.askers += fl.askers
		b.digests = append(b.digests, fl.digest)
		b.flights[fl.digest] = fl
	}
	return b
}

// run fetches the blobs of b.
func (t *ReadThrough) run(ctx context.Context, b *batch) { t.fetch(ctx, t.upstream, b) }

// whyNotFetched returns the error for a blob that a Fetch that ended with err did not deliver. An
// error of one blob is not returned for another. A blob that arrived wrong was requested again, so
// the error of Fetch, which is about the last attempt, has priority over the refusal.
func whyNotFetched(d digest.Digest, refused refusal, err error) error {
	var named *cas.FetchError
	var missing *cas.MissingError
	again := err != nil && refused.told && errors.Is(refused.err, cas.ErrCorrupt)
	switch {
	case refused.err != nil && !again:
		return fmt.Errorf("fetch blob %s: %w", d, refused.err)
	case errors.As(err, &named):
		if err := named.Blobs[d]; err != nil {
			return fmt.Errorf("fetch blob %s: %w", d, err)
		}
		return &cas.MissingError{Digests: []digest.Digest{d}}
	case err == nil || errors.As(err, &missing):
		return &cas.MissingError{Digests: []digest.Digest{d}}
	}
	return fmt.Errorf("fetch blob %s: %w", d, err)
}

// end ends fl, once; without an error the caller has pinned the blob, and end
// takes that pin.
func (t *ReadThrough) end(fl *flight, err error) {
	x := t.shared
	x.mu.Lock()
	first := !fl.ended
	unpin := err == nil
	if first {
		if x.closed && err != nil {
			err = fs.ErrClosed
		}
		fl.ended, fl.err = true, err
		fl.endedLocked()
		fl.pinned = err == nil && fl.askers > fl.patient
		unpin = unpin && !fl.pinned
		if x.inFlight[fl.digest] == fl {
			delete(x.inFlight, fl.digest)
		}
		fl.batch.open--
		fl.batch.askers -= fl.askers
		x.abandonLocked(fl.batch)
	}
	unused := first && fl.askers == 0
	x.mu.Unlock()
	if unused {
		fl.arrival.close()
	}
	if unpin {
		t.store.Release(fl.digest)
	}
	if first {
		if err == nil {
			t.countFetched(fl.digest)
		}
		close(fl.done)
	}
}

// leave records that a caller of fl, other than Prefetch, needs it no longer.
func (x *shared) leave(fl *flight) {
	x.mu.Lock()
	act := x.leftLocked(fl)
	x.mu.Unlock()
	act()
}

// leaveBehind is leave for the Prefetch p. It returns whether fl has ended, and how, and whether p is
// to return the blob.
func (x *shared) leaveBehind(fl *flight, p *prefetching) (ended, isMine bool, err error) {
	x.mu.Lock()
	fl.patient--
	ended, err = fl.ended, fl.err
	if !ended && fl.prefetching == p {
		fl.prefetching = nil
	}
	if ended && fl.behind && !fl.claimed && fl.by == p.by {
		isMine = fl.prefetching == nil || fl.prefetching == p
		if isMine {
			fl.prefetching = p
		}
	}
	act := x.leftLocked(fl)
	x.mu.Unlock()
	act()
	return ended, isMine, err
}

// leftLocked removes one caller of fl, and returns the work to do without the lock.
func (x *shared) leftLocked(fl *flight) func() {
	fl.askers--
	unpin := fl.pinned && fl.askers == fl.patient
	if unpin {
		fl.pinned = false
	}
	switch {
	case fl.ended:
	case fl.batch != nil:
		fl.batch.askers--
		x.abandonLocked(fl.batch)
	case fl.askers == 0:
		fl.endedLocked()
		delete(x.inFlight, fl.digest) // the queue passes over it
	}
	unused := fl.ended && fl.askers == 0
	return func() {
		if unused {
			fl.arrival.close()
		}
		if unpin {
			x.store.Release(fl.digest)
		}
	}
}

// abandonLocked cancels b if no caller waits for any of its flights. They leave the map, so that
// the next caller starts again.
func (x *shared) abandonLocked(b *batch) {
	if b.askers > 0 || b.open == 0 || b.abandoned {
		return
	}
	b.abandoned = true
	for d, fl := range b.flights {
		if x.inFlight[d] == fl {
			delete(x.inFlight, d)
		}
	}
	b.cancel()
}

// Close cancels all fetches and waits for their end. Afterwards nothing is fetched. The store stays
// open.
func (x *Group) Close() {
	x.mu.Lock()
	x.closed = true
	for _, fl := range x.inFlight {
		if fl.batch != nil { // a waiting one ends when its turn comes
			fl.batch.cancel()
		}
	}
	x.mu.Unlock()
	x.running.Wait()
}
