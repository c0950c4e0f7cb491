package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// ranged returns the upstream if d is large enough to be read while it arrives,
// and upstream can begin inside a blob; else nil.
func (t *ReadThrough) ranged(d digest.Digest) cas.RangeFetcher {
	if d.SizeBytes() <= t.arriveAbove {
		return nil
	}
	ranged, _ := t.upstream.(cas.RangeFetcher)
	return ranged
}

// OpenArriving opens d for reading without waiting for all of a large blob. It returns either a
// file, as OpenBlob does, or an Arrival. Reads of the Arrival fail if upstream does not have the
// blob. OpenArriving also returns where the blob was, even with an error. The caller closes the
// result.
func (t *ReadThrough) OpenArriving(ctx context.Context, d digest.Digest) (*os.File, *Arrival, cas.Presence, error) {
	for {
		file, err := t.store.OpenBlob(ctx, d)
		if !errors.Is(err, cas.ErrNotFound) {
			return file, nil, cas.Local, err
		}
		if t.ranged(d) == nil {
			file, was, err := t.OpenWhole(ctx, d)
			return file, nil, was, err
		}
		asked, err := t.ask(ctx, []digest.Digest{d})
		if err != nil {
			return nil, nil, cas.Absent, fmt.Errorf("open blob %s: %w", d, err)
		}
		if len(asked.flights) == 0 {
			continue // it has arrived
		}
		fl := asked.flights[0]
		if fl.arrival != nil {
			return nil, &Arrival{through: t, digest: d, flight: fl}, asked.was, nil
		}
		// Another caller fetches it in one piece.
		defer t.leave(fl)
		file, err = t.OpenBlob(ctx, d)
		return file, nil, asked.was, err
	}
}

// An Arrival is a large blob that can be read while it arrives in the Store. All callers that open
// it at the same time share the fetch, which continues until all have closed their Arrivals; the
// bytes of an incomplete blob are dropped then. Its methods may be called concurrently.
//
// The bytes are not verified until Wait returns nil. If the blob does not match its digest, it is
// not stored and every read from then on is ErrCorrupt: users of earlier bytes must handle that.
type Arrival struct {
	through *ReadThrough
	digest  digest.Digest

	mu     sync.Mutex
	flight *flight  // guarded by mu; nil when file is set or the Arrival is closed
	file   *os.File // guarded by mu; set when the blob arrived while we changed flights
	closed bool     // guarded by mu
	served bool     // guarded by mu; bytes of flight were given out
}

// ReadAt reads as io.ReaderAt does. It waits until the bytes have arrived or ctx ends; bytes that
// are far from those being fetched are fetched first. It returns bytes that have arrived even if
// ctx has ended. A *MissingError means that the blob is not upstream.
func (a *Arrival) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	for {
		fl, file, err := a.at()
		if err != nil {
			return 0, fmt.Errorf("read blob %s: %w", a.digest, err)
		}
		if file != nil {
			return file.ReadAt(p, off)
		}
		n, err := fl.arrival.readAt(ctx, p, off)
		if err == nil || errors.Is(err, io.EOF) {
			a.give(fl)
			return n, err
		}
		if again, err := a.follow(ctx, fl, err); !again {
			return 0, fmt.Errorf("read blob %s: %w", a.digest, err)
		}
	}
}

// Wait waits until the blob is verified and in the Store. If the fetch fails, Wait and every later
// read return its error.
func (a *Arrival) Wait(ctx context.Context) error {
	for {
		fl, file, err := a.at()
		if err != nil {
			return fmt.Errorf("wait for blob %s: %w", a.digest, err)
		}
		if file != nil {
			return nil
		}
		select {
		case <-fl.done:
			err = fl.err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err == nil {
			return nil
		}
		if again, err := a.follow(ctx, fl, err); !again {
			return fmt.Errorf("wait for blob %s: %w", a.digest, err)
		}
	}
}

// Close ends the use of a. Further calls do nothing.
func (a *Arrival) Close() {
	a.mu.Lock()
	fl, file := a.flight, a.file
	a.flight, a.file, a.closed = nil, nil, true
	a.mu.Unlock()
	a.through.discard(fl, file)
}

func (t *ReadThrough) discard(fl *flight, file *os.File) {
	if fl != nil {
		t.leave(fl)
	}
	if file != nil {
		_ = file.Close()
	}
}

func (a *Arrival) at() (*flight, *os.File, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, nil, fs.ErrClosed
	}
	return a.flight, a.file, nil
}

// give notes that bytes of fl were given out.
func (a *Arrival) give(fl *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.served = a.served || a.flight == fl
}

// follow decides what to do after fl has failed with err. A failure of another ReadThrough's fetch
// does not count for our upstream, which is asked then, as after one of Prefetch, unless readers
// got bytes that will never be verified.
func (a *Arrival) follow(ctx context.Context, fl *flight, err error) (again bool, _ error) {
	a.mu.Lock()
	moved, final := a.flight != fl, a.served || fl.by == a.through && !fl.behind
	a.mu.Unlock()
	if moved {
		return true, nil
	}
	if final || ctx.Err() != nil {
		return false, err
	}
	// While it fails, fl can still be joined.
	select {
	case <-fl.done:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	file, next, _, err := a.through.OpenArriving(ctx, a.digest)
	if err != nil {
		return false, err
	}
	var other *flight
	if next != nil {
		other = next.flight
	}
	a.mu.Lock()
	moved = a.flight != fl || a.closed || a.served
	if !moved {
		a.flight, a.file = other, file
	}
	a.mu.Unlock()
	if moved {
		a.through.discard(other, file)
		return true, nil
	}
	a.through.discard(fl, nil)
	return true, nil
}
