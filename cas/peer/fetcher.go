package peer

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// maxBlobBytes is the size of the largest blob that peers are asked for: the whole blob is in
// memory until it is verified.
const maxBlobBytes = 4 << 20

// headStart is the time that peers have before storage is asked too: enough for a round trip
// nearby, and for that many bytes at 1 Gbit/s.
func headStart(bytes int64) time.Duration {
	return 5*time.Millisecond + time.Duration(bytes)*10*time.Nanosecond
}

// A Fetcher is a cas.Fetcher that asks peers before storage, each peer for the blobs that the
// earlier ones lacked. If they have not sent everything within a head start of a few milliseconds,
// it also asks storage, and takes each blob from whichever sends it first. So peers cost at most
// the head start, and fail nothing.
//
// Large blobs and ranges come from storage. Blobs from peers are verified before sink sees them.
// Its methods may be called concurrently.
type Fetcher struct {
	peers   []*Peer
	storage *client.Client
	asker   asker
	fetched *counts
}

// counts has the numbers of blobs and bytes that came from peers.
type counts struct{ blobs, bytes atomic.Int64 }

var (
	_ cas.RangeFetcher   = (*Fetcher)(nil)
	_ cas.PatientFetcher = (*Fetcher)(nil)
	_ cas.DirectFetcher  = (*Fetcher)(nil)
)

// An asker is the identity under which peers are asked.
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

// NewFetcher returns a Fetcher that asks peers before c. It uses c's instance name without its
// prefix for them.
func NewFetcher(c *client.Client, peers []*Peer, instance string) *Fetcher {
	return &Fetcher{
		peers: peers, storage: c, fetched: &counts{},
		asker: asker{instance: instance, fn: c.Function()},
	}
}

// FromPeers returns how many blobs and bytes came from peers, including those of Fetchers from
// Behind.
func (n *Fetcher) FromPeers() (blobs, bytes int64) {
	return n.fetched.blobs.Load(), n.fetched.bytes.Load()
}

// Direct implements DirectFetcher.
func (n *Fetcher) Direct() cas.Fetcher { return n.storage }

// Behind implements PatientFetcher.
func (n *Fetcher) Behind() cas.Fetcher {
	b := *n
	b.storage, b.asker.behind = n.storage.Behind().(*client.Client), true
	return &b
}

// FetchRange implements RangeFetcher.
func (n *Fetcher) FetchRange(ctx context.Context, d digest.Digest, part span.Span, w io.Writer) error {
	return n.storage.FetchRange(ctx, d, part, w)
}

// Fetch implements Fetcher.
func (n *Fetcher) Fetch(
	ctx context.Context, ds []digest.Digest, sink func(d digest.Digest, r io.Reader) error,
) error {
	ds = digest.Distinct(ds)
	near, small, bytes := n.worth(ds)
	if len(near) == 0 || len(small) == 0 {
		return n.storage.Fetch(ctx, ds, sink)
	}
	fromStorage, enough := context.WithCancel(ctx)
	defer enough()
	h := newFetch(ds, sink, n.fetched, enough)
	fromPeers, stop := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for _, x := range near {
			if rest := h.missing(small); len(rest) > 0 && fromPeers.Err() == nil {
				x.fetch(fromPeers, ctx, n.asker, rest, h)
			}
		}
	}()
	await(asked, headStart(bytes))
	var err error
	if rest := h.missing(ds); len(rest) > 0 {
		err = n.storage.Fetch(fromStorage, rest, h.take)
	}
	stop()
	<-asked
	return h.result(ds, err)
}

// worth returns the peers to ask now, the blobs to ask them for, and the bytes of these.
func (n *Fetcher) worth(ds []digest.Digest) (near []*Peer, small []digest.Digest, bytes int64) {
	for _, x := range n.peers {
		if x.awake() {
			near = append(near, x)
		}
	}
	for _, d := range ds {
		if d.SizeBytes() <= maxBlobBytes {
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
