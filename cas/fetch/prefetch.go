package fetch

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A queueKind is a kind of prefetched blobs, which wait for each other.
type queueKind uint8

// The kinds of queues. Queues do not wait for one another.
const (
	directoryQueue queueKind = iota // blobs of PrefetchDirectories
	smallQueue                      // blobs that go in batches
	largeQueue                      // each a call of its own
	queueKinds     = 3
)

// The bounds of prefetching, over all ReadThroughs of a Store. Batches are smaller than a message
// may be, because a command that opens a blob in flight waits for its batch.
const (
	directoryCalls = 4
	smallCalls     = 8
	largeCalls     = 4
	behindBytes    = 2 << 20
	// maxExtra and extraBytes limit the prefetched blobs in a call with waiting callers: at 1
	// Gbit/s it takes 2 ms longer.
	maxExtra   = 256
	extraBytes = 256 << 10
	// askChunk is how many digests are looked up in one hold of the lock.
	askChunk = 1024
)

// A queue has the prefetches of one kind of a Store. flights.mu guards it.
type queue struct {
	calls int            // goroutines that fetch queued blobs
	turns []*ReadThrough // those with queued blobs, the next one first
}

// A backlog has the waiting prefetches of a ReadThrough in one queue. flights.mu guards it.
type backlog struct {
	flights []*flight
	inTurn  bool // it is among the queue's turns
}

func (k queueKind) maxCalls() int {
	return [queueKinds]int{directoryCalls, smallCalls, largeCalls}[k]
}

// space returns the capacity of one call.
func (k queueKind) space() space {
	if k == largeQueue {
		return space{blobs: 1}
	}
	return space{blobs: cas.MaxBatchBlobs, bytes: behindBytes}
}

func queueOf(d digest.Digest, directories bool) queueKind {
	switch {
	case !gathered(d):
		return largeQueue
	case directories:
		return directoryQueue
	}
	return smallQueue
}

// Prefetch makes ds local, roughly in their order, behind all waiting callers, and waits until they
// are. It returns, in any order, the blobs that it fetched: not blobs that were local, that another
// caller fetches, or that were requested before their turn. Of several calls for one blob, only one
// returns it, the first unless its ctx ends before: to the others it may come sooner than in a
// round trip. The error is one of the reasons why blobs could not be fetched.
//
// Small blobs are fetched in batches, large ones in streams, with a few calls at a time for all
// Prefetches of the Store, whose ReadThroughs take turns. Queued blobs delay no caller: a caller
// that asks for such a blob with another method gets it with the next call. A failed blob is tried
// again for the next caller. If the upstream is a PatientFetcher, the calls go through its Behind.
// Small calls with waiting callers also fetch some queued blobs.
//
// When ctx ends, fetches without other callers are cancelled. Blobs are not pinned: new ones, and
// blobs of ds that were local, are the last to be evicted. Even if the store is so small that it
// evicts them, it must still accept the blobs that an action needs.
func (t *ReadThrough) Prefetch(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return t.prefetch(ctx, ds, false)
}

// PrefetchDirectories does the same as Prefetch for blobs that lead to further prefetches. They do
// not wait behind blobs of Prefetch.
func (t *ReadThrough) PrefetchDirectories(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return t.prefetch(ctx, ds, true)
}

// inMemory reports whether d is a Directory that is in memory.
func (t *ReadThrough) inMemory(d digest.Digest) bool {
	_, ok := t.directories.Get(d)
	return ok
}

// prefetching is one call of Prefetch or PrefetchDirectories.
type prefetching struct {
	by      *ReadThrough
	flights []*flight // those that it has joined, and must leave
}

func (t *ReadThrough) prefetch(
	ctx context.Context, ds []digest.Digest, directories bool,
) (got []digest.Digest, err error) {
	absent, err := t.store.FindMissing(ctx, ds)
	absent = digest.Distinct(absent)
	if directories {
		absent = slices.DeleteFunc(absent, t.inMemory)
	}
	p := &prefetching{by: t}
	for len(absent) > 0 && err == nil {
		chunk := absent[:min(len(absent), askChunk)]
		absent = absent[len(chunk):]
		err = t.askBehind(ctx, p, chunk, directories)
	}
	wait(ctx, p.flights)
	// In reverse order: waiting ones must not replace cancelled ones.
	for _, fl := range slices.Backward(p.flights) {
		if ended, isMine, failure := t.leaveBehind(fl, p); !ended {
			err = context.Cause(ctx)
		} else if failure != nil {
			err = failure
		} else if isMine {
			got = append(got, fl.digest)
		}
	}
	if err != nil {
		err = fmt.Errorf("prefetch %d blobs: %w", len(ds), err)
	}
	return got, err
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

// askBehind has p join the flights of the blobs in ds that are not local, and queues blobs without
// a flight. The caller must leave all of them with leaveBehind.
func (t *ReadThrough) askBehind(ctx context.Context, p *prefetching, ds []digest.Digest, directories bool) error {
	x := t.shared
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return fs.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, d := range ds {
		fl := x.inFlight[d]
		switch {
		case d.IsEmptyBlob() || d.IsZero() || fl == nil && t.store.Has(d):
			continue
		case fl == nil:
			fl = &flight{digest: d, by: t, behind: true, prefetching: p, done: make(chan struct{})}
			x.inFlight[d] = fl
			x.enqueueLocked(fl, queueOf(d, directories))
		case fl.behind && fl.batch == nil && directories:
			// It may wait as a file. In the other queue it will be passed over.
			x.enqueueLocked(fl, queueOf(d, directories))
		case fl.arrival != nil && fl.rest == restUnwanted:
			fl.rest = restQueued
			x.enqueueLocked(fl, largeQueue)
		}
		fl.askers++
		fl.patient++
		if fl.batch != nil {
			fl.batch.askers++
		}
		p.flights = append(p.flights, fl)
	}
	for k := range queueKind(queueKinds) {
		t.driveLocked(ctx, k)
	}
	return nil
}

func (x *shared) enqueueLocked(fl *flight, k queueKind) {
	waiting := &fl.by.backlogs[k]
	waiting.flights = append(waiting.flights, fl)
	if !waiting.inTurn {
		waiting.inTurn = true
		x.queues[k].turns = append(x.queues[k].turns, fl.by)
	}
}

// driveLocked starts another goroutine for a queue, if it may have one.
func (x *shared) driveLocked(ctx context.Context, k queueKind) {
	l := &x.queues[k]
	if len(l.turns) == 0 || l.calls == k.maxCalls() {
		return
	}
	l.calls++
	ctx = context.WithoutCancel(ctx)
	x.running.Go(func() {
		for x.fetchNext(ctx, k) {
		}
	})
}

// fetchNext makes one call for a queue. It returns false when the queue is empty, and the caller is
// no longer counted.
func (x *shared) fetchNext(ctx context.Context, k queueKind) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call := x.takeNext(ctx, k, cancel)
	if call == nil {
		return false
	}
	call()
	return true
}

// takeNext makes a call for a queue, for the next ReadThrough; nil if the queue is empty.
func (x *shared) takeNext(ctx context.Context, k queueKind, cancel context.CancelFunc) (call func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := &x.queues[k]
	for len(l.turns) > 0 {
		t := l.turns[0]
		l.turns[0] = nil
		l.turns = l.turns[1:]
		waiting, left := &t.backlogs[k], k.space()
		var flights []*flight
		flights, waiting.flights = takeLocked(waiting.flights, true, 1, &left)
		waiting.inTurn = len(waiting.flights) > 0
		if waiting.inTurn {
			l.turns = append(l.turns, t)
		} else {
			waiting.flights = nil
		}
		if len(flights) == 0 {
			continue
		}
		if x.closed {
			cancel()
		}
		x.driveLocked(ctx, k)
		first := flights[0]
		if first.rest == restQueued {
			first.completeLocked(false)
			return func() { <-first.done }
		}
		b := boardLocked(flights, cancel)
		if t.ranged(first.digest) == nil {
			return func() { t.fetch(ctx, t.behind, b) }
		}
		first.arrival = t.newArrival(first.digest)
		first.yieldsLocked()
		first.completeLocked(false)
		return func() { t.arrive(ctx, b) }
	}
	l.calls--
	return nil
}

// extraLocked takes prefetches that fit into a call.
func (t *ReadThrough) extraLocked(left *space) (extra []*flight) {
	for _, k := range []queueKind{directoryQueue, smallQueue} {
		waiting := &t.backlogs[k]
		var taken []*flight
		taken, waiting.flights = takeLocked(waiting.flights, true, 0, left)
		extra = append(extra, taken...)
	}
	return extra
}
