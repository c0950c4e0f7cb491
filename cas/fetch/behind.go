package fetch

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A laneKind is one of the kinds of blobs that wait for each other when nobody
// else waits for them.
type laneKind uint8

// The lanes. They do not wait for one another.
const (
	directoryLane laneKind = iota // what PrefetchDirectories asked for
	smallLane                     // blobs that go in batches
	largeLane                     // each a call of its own
	lanes         = 3
)

// The bounds of what nobody waits for, over all ReadThroughs of a Store. A smaller
// batch than that of a message is what somebody has to wait for who opens a blob
// that is already on its way.
const (
	directoryCalls = 4
	smallCalls     = 8
	largeCalls     = 4
	behindBytes    = 2 << 20
	// maxRiders and riderBytes bound what rides along in a call that somebody waits
	// for: at 1 Gbit/s it takes 2 ms longer.
	maxRiders  = 256
	riderBytes = 256 << 10
	// askChunk is how many digests are looked up in one hold of the lock.
	askChunk = 1024
)

// A lane is what a Store prefetches of one kind. flights.mu guards it.
type lane struct {
	calls int            // goroutines that bring what waits
	turns []*ReadThrough // those that have something waiting, who comes next first
}

// A line is what a ReadThrough has waiting in one lane. flights.mu guards it.
type line struct {
	flights []*flight
	inTurn  bool // it is among the lane's turns
}

func (k laneKind) maxCalls() int {
	return [lanes]int{directoryCalls, smallCalls, largeCalls}[k]
}

// room is that of one call.
func (k laneKind) room() room {
	if k == largeLane {
		return room{blobs: 1}
	}
	return room{blobs: cas.MaxBatchBlobs, bytes: behindBytes}
}

func laneOf(d digest.Digest, directories bool) laneKind {
	switch {
	case !gathered(d):
		return largeLane
	case directories:
		return directoryLane
	}
	return smallLane
}

// Prefetch makes ds local behind everything that somebody waits for, in about
// their order, and waits for that. It returns, in any order, those that came
// because of it: not those that were there, nor those that somebody else brings,
// or asked for before their turn had come. The error says why some did not come;
// it is one of many.
//
// Small blobs go in batches, large ones in streams, with a few calls at a time for
// all Prefetches of the Store, whose ReadThroughs take turns. Blobs that wait for
// their call delay nobody: who asks for one with another method has it in the very
// next call. What failed to come this way is tried again for whoever asks. If the
// upstream is a PatientFetcher, the calls go through its Behind. Small calls that
// somebody waits for take a little along of what waits.
//
// When ctx ends, what nobody else waits for is cancelled. Blobs are not pinned:
// those that have just come, and those of ds that were there, are the last to be
// evicted, and a store so small that they are all the same must not be kept from
// taking in what an action needs.
func (t *ReadThrough) Prefetch(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return t.prefetch(ctx, ds, false)
}

// PrefetchDirectories is Prefetch for blobs that tell which others are to be
// prefetched: they do not wait behind those of Prefetch.
func (t *ReadThrough) PrefetchDirectories(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return t.prefetch(ctx, ds, true)
}

func (t *ReadThrough) prefetch(
	ctx context.Context, ds []digest.Digest, directories bool,
) (brought []digest.Digest, err error) {
	absent, err := t.store.FindMissing(ctx, ds)
	absent = digest.Distinct(absent)
	var flights []*flight
	for len(absent) > 0 && err == nil {
		chunk := absent[:min(len(absent), askChunk)]
		absent = absent[len(chunk):]
		var asked []*flight
		asked, err = t.askBehind(ctx, chunk, directories)
		flights = append(flights, asked...)
	}
	wait(ctx, flights)
	// The last first: what still waits is not to follow what is cancelled.
	for _, fl := range slices.Backward(flights) {
		if ended, failure := t.leaveBehind(fl); !ended {
			err = context.Cause(ctx)
		} else if failure != nil {
			err = failure
		} else if fl.behind && fl.by == t {
			brought = append(brought, fl.digest)
		}
	}
	if err != nil {
		err = fmt.Errorf("prefetch %d blobs: %w", len(ds), err)
	}
	return brought, err
}

// wait waits until all flights have ended, or ctx has.
func wait(ctx context.Context, flights []*flight) {
	for _, fl := range flights {
		select {
		case <-fl.done:
		case <-ctx.Done():
			return
		}
	}
}

// askBehind joins the flights of those of ds that are not there. Those that nobody
// brings get in line. The caller leaves all of them with leaveBehind.
func (t *ReadThrough) askBehind(ctx context.Context, ds []digest.Digest, directories bool) ([]*flight, error) {
	x := t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, fs.ErrClosed
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var asked []*flight
	for _, d := range ds {
		fl := x.flying[d]
		switch {
		case d.IsEmptyBlob() || d.IsZero() || fl == nil && t.store.Has(d):
			continue
		case fl == nil:
			fl = &flight{digest: d, by: t, behind: true, done: make(chan struct{})}
			x.flying[d] = fl
			x.lineUpLocked(fl, laneOf(d, directories))
		case fl.behind && fl.batch == nil && directories:
			// It may wait as a file. In the other line it will be passed over.
			x.lineUpLocked(fl, laneOf(d, directories))
		}
		fl.askers++
		fl.patient++
		if fl.batch != nil {
			fl.batch.askers++
		}
		asked = append(asked, fl)
	}
	for k := range laneKind(lanes) {
		t.driveLocked(ctx, k)
	}
	return asked, nil
}

func (x *shared) lineUpLocked(fl *flight, k laneKind) {
	line := &fl.by.lines[k]
	line.flights = append(line.flights, fl)
	if !line.inTurn {
		line.inTurn = true
		x.lanes[k].turns = append(x.lanes[k].turns, fl.by)
	}
}

// driveLocked sees to it that somebody brings what waits in a lane.
func (x *shared) driveLocked(ctx context.Context, k laneKind) {
	l := &x.lanes[k]
	if len(l.turns) == 0 || l.calls == k.maxCalls() {
		return
	}
	l.calls++
	ctx = context.WithoutCancel(ctx)
	x.running.Go(func() {
		for x.bringNext(ctx, k) {
		}
	})
}

// bringNext makes one call for what waits in a lane. It returns false when there
// is nothing, and the caller is no longer counted.
func (x *shared) bringNext(ctx context.Context, k laneKind) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t, b := x.takeBehind(ctx, k, cancel)
	switch {
	case b == nil:
		return false
	case b.flights[b.digests[0]].arrival != nil:
		t.arrive(ctx, b)
	default:
		t.bring(ctx, t.behind, b)
	}
	return true
}

// takeBehind makes a batch of what waits in a lane, for the one whose turn it is.
func (x *shared) takeBehind(ctx context.Context, k laneKind, cancel context.CancelFunc) (*ReadThrough, *batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &x.lanes[k]
	for len(l.turns) > 0 {
		t := l.turns[0]
		l.turns[0] = nil
		l.turns = l.turns[1:]
		line, left := &t.lines[k], k.room()
		var flights []*flight
		flights, line.flights = takeLocked(line.flights, true, 1, &left)
		line.inTurn = len(line.flights) > 0
		if line.inTurn {
			l.turns = append(l.turns, t)
		} else {
			line.flights = nil
		}
		if len(flights) == 0 {
			continue
		}
		if ranged := t.ranged(flights[0].digest); ranged != nil {
			behind, _ := t.behind.(cas.RangeFetcher)
			flights[0].arrival = newArrival(x.store, ranged, behind, flights[0].digest)
		}
		if x.closed {
			cancel()
		}
		x.driveLocked(ctx, k)
		return t, boardLocked(flights, cancel)
	}
	l.calls--
	return nil, nil
}

// ridersLocked takes of what waits behind what fits in there.
func (t *ReadThrough) ridersLocked(left *room) (riders []*flight) {
	for _, k := range []laneKind{directoryLane, smallLane} {
		line := &t.lines[k]
		var taken []*flight
		taken, line.flights = takeLocked(line.flights, true, 0, left)
		riders = append(riders, taken...)
	}
	return riders
}
