package peer

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxBorrowed is the size of the largest blob that neighbours are asked for: it is whole in memory
// before anybody sees it.
const maxBorrowed = 4 << 20

// headStart is how long neighbours have before storage is asked, too: enough for a round trip nearby, and
// for so many bytes at 1 Gbit/s.
func headStart(bytes int64) time.Duration {
	return 5*time.Millisecond + time.Duration(bytes)*10*time.Nanosecond
}

// Neighbours is a Fetcher that asks the stores of other workers before storage, one after the other
// for what none of them had so far. If they have not brought everything within a head start of a few
// milliseconds storage is asked as well, and each blob is taken from whoever has it first: so that much
// is what they can cost, and they fail nothing. One that storage overtakes is left alone for a while.
//
// Storage alone is asked for large blobs and for ranges. What comes from neighbours has been verified
// when sink sees it. Its methods may be called concurrently.
type Neighbours struct {
	near     []*Neighbour
	storage  *client.Client
	asker    asker
	borrowed *borrowed
}

// borrowed counts what neighbours brought.
type borrowed struct{ blobs, bytes atomic.Int64 }

var (
	_ cas.RangeFetcher   = (*Neighbours)(nil)
	_ cas.PatientFetcher = (*Neighbours)(nil)
	_ cas.DirectFetcher  = (*Neighbours)(nil)
)

// An asker is as whom neighbours are asked.
type asker struct {
	instance string
	fn       digest.Function
	behind   bool
}

// of returns a Client that asks for a.
func (a asker) of(c *client.Client) *client.Client {
	c = c.WithInstance(a.instance, a.fn)
	if a.behind {
		c = c.Behind().(*client.Client)
	}
	return c
}

// Beside returns a Fetcher that asks near before c, under an instance name without c's prefix.
func Beside(c *client.Client, near []*Neighbour, instance string) *Neighbours {
	return &Neighbours{
		near: near, storage: c, borrowed: &borrowed{},
		asker: asker{instance: instance, fn: c.Function()},
	}
}

// Borrowed returns how many blobs and bytes came from neighbours, also through what Behind returned.
func (n *Neighbours) Borrowed() (blobs, bytes int64) {
	return n.borrowed.blobs.Load(), n.borrowed.bytes.Load()
}

// Direct implements DirectFetcher.
func (n *Neighbours) Direct() cas.Fetcher { return n.storage }

// Behind implements PatientFetcher.
func (n *Neighbours) Behind() cas.Fetcher {
	b := *n
	b.storage, b.asker.behind = n.storage.Behind().(*client.Client), true
	return &b
}

// FetchFrom implements RangeFetcher.
func (n *Neighbours) FetchFrom(ctx context.Context, d digest.Digest, offset int64, w io.Writer) error {
	return n.storage.FetchFrom(ctx, d, offset, w)
}

// Fetch implements Fetcher.
func (n *Neighbours) Fetch(
	ctx context.Context, ds []digest.Digest, sink func(d digest.Digest, r io.Reader) error,
) error {
	ds = digest.Distinct(ds)
	near, small, bytes := n.worth(ds)
	if len(near) == 0 || len(small) == 0 {
		return n.storage.Fetch(ctx, ds, sink)
	}
	fromStorage, enough := context.WithCancel(ctx)
	defer enough()
	h := newHunt(ds, sink, n.borrowed, enough)
	fromNeighbours, stop := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for _, x := range near {
			if rest := h.rest(small); len(rest) > 0 && fromNeighbours.Err() == nil {
				x.bring(fromNeighbours, ctx, n.asker, rest, h)
			}
		}
	}()
	await(asked, headStart(bytes))
	var err error
	if rest := h.rest(ds); len(rest) > 0 {
		err = n.storage.Fetch(fromStorage, rest, h.take)
	}
	stop()
	<-asked
	return h.result(ds, err)
}

// worth returns whom of the neighbours to ask now, for which of ds, and how many bytes these are.
func (n *Neighbours) worth(ds []digest.Digest) (near []*Neighbour, small []digest.Digest, bytes int64) {
	for _, x := range n.near {
		if x.awake() {
			near = append(near, x)
		}
	}
	for _, d := range ds {
		if d.SizeBytes() <= maxBorrowed {
			small = append(small, d)
			bytes += d.SizeBytes()
		}
	}
	return near, small, bytes
}

// await returns when done is closed, or after d.
func await(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
