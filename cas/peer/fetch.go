package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A fetch is one call of Fetcher.Fetch. Peers and storage fetch the same blobs; each blob is taken
// from whichever sends it first.
type fetch struct {
	sink    func(d digest.Digest, r io.Reader) error
	fetched *counts
	enough  func() // ends the call to storage

	mu     sync.Mutex
	left   map[digest.Digest]struct{} // not taken yet; guarded by mu
	taking int                        // calls of sink; guarded by mu
	failed map[digest.Digest]error    // of sink; guarded by mu
}

func newFetch(
	ds []digest.Digest, sink func(digest.Digest, io.Reader) error, c *counts, enough func(),
) *fetch {
	f := &fetch{
		sink: sink, fetched: c, enough: enough,
		left: make(map[digest.Digest]struct{}, len(ds)), failed: map[digest.Digest]error{},
	}
	for _, d := range ds {
		f.left[d] = struct{}{}
	}
	return f
}

// missing returns the digests in ds that are still missing.
func (f *fetch) missing(ds []digest.Digest) (rest []digest.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range ds {
		if _, ok := f.left[d]; ok {
			rest = append(rest, d)
		}
	}
	return rest
}

// claim takes d for the caller, and reports whether it was left.
func (f *fetch) claim(d digest.Digest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.left[d]; !ok {
		return false
	}
	delete(f.left, d)
	f.taking++
	return true
}

// deliver passes on d, which was claimed. When nothing is left it ends the call to storage.
func (f *fetch) deliver(d digest.Digest, r io.Reader) error {
	err := f.sink(d, r)
	f.mu.Lock()
	switch {
	case errors.Is(err, cas.ErrCorrupt): // storage is asked again, or a peer has it; else the error of the call names it
		f.left[d] = struct{}{}
	case err != nil:
		f.failed[d] = err
	}
	f.taking--
	last := f.taking == 0 && len(f.left) == 0
	f.mu.Unlock()
	if last {
		f.enough()
	}
	return err
}

// take is the sink of storage.
func (f *fetch) take(d digest.Digest, r io.Reader) error {
	if !f.claim(d) {
		return nil
	}
	return f.deliver(d, r)
}

// fetchFrom fetches ds from a peer, and returns how many of them it sent first.
func (f *fetch) fetchFrom(ctx context.Context, c *client.Client, ds []digest.Digest) (blobs int64, err error) {
	var first atomic.Int64
	err = c.Fetch(ctx, ds, func(d digest.Digest, r io.Reader) error {
		data := bytes.NewBuffer(make([]byte, 0, d.SizeBytes()+bytes.MinRead))
		// One byte more, because an error of a blob comes at its end.
		if _, err := data.ReadFrom(io.LimitReader(r, d.SizeBytes()+1)); err != nil {
			return err
		}
		if !f.claim(d) {
			return nil
		}
		first.Add(1)
		f.fetched.blobs.Add(1)
		f.fetched.bytes.Add(d.SizeBytes())
		_ = f.deliver(d, data) // f.failed has the error, which is not the peer's fault
		return nil
	})
	return first.Load(), err
}

// result returns the outcome of the fetch of ds if storage ended with err. All calls have ended.
func (f *fetch) result(ds []digest.Digest, err error) error {
	var named *cas.FetchError
	if errors.As(err, &named) {
		for d, err := range named.Blobs {
			if _, ok := f.left[d]; ok {
				f.failed[d] = err
			}
		}
	}
	switch rest := f.missing(ds); {
	case len(rest) > 0 && named == nil && err != nil && !errors.Is(err, cas.ErrNotFound):
		return err
	case len(f.failed) > 0:
		return &cas.FetchError{Blobs: f.failed}
	case len(rest) > 0:
		return &cas.MissingError{Digests: rest}
	}
	return nil
}
