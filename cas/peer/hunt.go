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

// A hunt is one call of Neighbours.Fetch: several bring blobs, and each is taken from one of them.
type hunt struct {
	sink     func(d digest.Digest, r io.Reader) error
	borrowed *borrowed
	enough   func() // ends what storage is asked for

	mu     sync.Mutex
	left   map[digest.Digest]struct{} // nobody has begun to bring it; guarded by mu
	taking int                        // calls of sink; guarded by mu
	failed map[digest.Digest]error    // of sink; guarded by mu
}

func newHunt(
	ds []digest.Digest, sink func(digest.Digest, io.Reader) error, b *borrowed, enough func(),
) *hunt {
	h := &hunt{
		sink: sink, borrowed: b, enough: enough,
		left: make(map[digest.Digest]struct{}, len(ds)), failed: map[digest.Digest]error{},
	}
	for _, d := range ds {
		h.left[d] = struct{}{}
	}
	return h
}

// rest returns those of ds that are left.
func (h *hunt) rest(ds []digest.Digest) (rest []digest.Digest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range ds {
		if _, ok := h.left[d]; ok {
			rest = append(rest, d)
		}
	}
	return rest
}

// claim reports whether d was left, and has begun to be taken now.
func (h *hunt) claim(d digest.Digest) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.left[d]; !ok {
		return false
	}
	delete(h.left, d)
	h.taking++
	return true
}

// deliver passes on d, which was claimed. When nothing is left nobody need go on.
func (h *hunt) deliver(d digest.Digest, r io.Reader) error {
	err := h.sink(d, r)
	h.mu.Lock()
	if err != nil {
		h.failed[d] = err
	}
	h.taking--
	last := h.taking == 0 && len(h.left) == 0
	h.mu.Unlock()
	if last {
		h.enough()
	}
	return err
}

// take is the sink of storage.
func (h *hunt) take(d digest.Digest, r io.Reader) error {
	if !h.claim(d) {
		return nil
	}
	return h.deliver(d, r)
}

// borrow has a neighbour's Client bring ds, and returns how many of them it brought first.
func (h *hunt) borrow(ctx context.Context, c *client.Client, ds []digest.Digest) (blobs int64, err error) {
	var first atomic.Int64
	err = c.Fetch(ctx, ds, func(d digest.Digest, r io.Reader) error {
		data := bytes.NewBuffer(make([]byte, 0, d.SizeBytes()+bytes.MinRead))
		// One byte more, for what is wrong with a blob is said at its end.
		if _, err := data.ReadFrom(io.LimitReader(r, d.SizeBytes()+1)); err != nil {
			return err
		}
		if !h.claim(d) {
			return nil
		}
		first.Add(1)
		h.borrowed.blobs.Add(1)
		h.borrowed.bytes.Add(d.SizeBytes())
		_ = h.deliver(d, data) // it is noted, and not the neighbour's fault
		return nil
	})
	return first.Load(), err
}

// result returns how the hunt for ds ended, if storage ended with err. Nobody takes part any more.
func (h *hunt) result(ds []digest.Digest, err error) error {
	var named *cas.FetchError
	if errors.As(err, &named) {
		for d, err := range named.Blobs {
			if _, ok := h.left[d]; ok {
				h.failed[d] = err
			}
		}
	}
	switch rest := h.rest(ds); {
	case len(rest) > 0 && named == nil && err != nil && !errors.Is(err, cas.ErrNotFound):
		return err
	case len(h.failed) > 0:
		return &cas.FetchError{Blobs: h.failed}
	case len(rest) > 0:
		return &cas.MissingError{Digests: rest}
	}
	return nil
}
