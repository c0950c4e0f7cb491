package fuse

import (
	"context"
	"errors"
	"io"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// arriving is an Arrival for open files of a root. Their reads come to this process and go through
// the page cache, so that the file can be mapped. The kernel opens a file either this way or with
// passthrough: a file that is open when its blob becomes complete is served this way until its last
// handle is closed. A failed one stays in the table until the root closes.
type arriving struct {
	digest digest.Digest
	data   Arrival
	ended  chan struct{} // closed when the end has been dealt with

	// Guarded by blobTable.mu.
	opened map[uint64]*blob    // open files, by node id
	shown  map[uint64]struct{} // the nodes with pages in the kernel
	served bool                // bytes went out
	whole  bool
	err    error // why it failed
}

// useLocked returns the blob by which node has ar open, and counts a user.
func (ar *arriving) useLocked(node uint64) *blob {
	b := ar.opened[node]
	if b == nil {
		b = &blob{digest: ar.digest, arriving: ar, node: node}
		ar.opened[node] = b
		ar.shown[node] = struct{}{}
	}
	b.users++
	return b
}

// addArriving makes an arriving blob of data, which it owns from then on, and
// counts a user. If another access was faster, it returns that one's, and fresh
// is nil.
func (t *blobTable) addArriving(d digest.Digest, node uint64, data Arrival) (b *blob, fresh *arriving) {
	t.mu.Lock()
	b = t.useLocked(d, node)
	if ar := t.arriving[d]; b == nil && ar != nil {
		b = ar.useLocked(node) // of a blob that arrived and was evicted since
	}
	if b == nil {
		fresh = &arriving{
			digest: d, data: data, ended: make(chan struct{}),
			opened: map[uint64]*blob{}, shown: map[uint64]struct{}{},
		}
		t.arriving[d] = fresh
		b = fresh.useLocked(node)
	}
	t.mu.Unlock()
	if fresh == nil {
		data.Close()
	}
	return b, fresh
}

// settle records the end of ar. It returns the nodes whose pages must be dropped.
func (t *blobTable) settle(ar *arriving, err error) (shown []uint64) {
	t.mu.Lock()
	ar.whole, ar.err = err == nil, err
	unused := t.unusedLocked(ar)
	if err != nil {
		for node := range ar.shown {
			shown = append(shown, node)
		}
	}
	t.mu.Unlock()
	if unused {
		ar.data.Close()
	}
	return shown
}

// unusedLocked takes ar out of the table if nothing needs it any more; the caller
// closes it then.
func (t *blobTable) unusedLocked(ar *arriving) bool {
	if !ar.whole || len(ar.opened) > 0 {
		return false
	}
	delete(t.arriving, ar.digest)
	return true
}

// failure returns why the blob cannot be read, nil if it can.
func (t *blobTable) failure(b *blob) error {
	if b.arriving == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return b.arriving.err
}

// served notes that bytes of ar go out, unless it has failed.
func (t *blobTable) serve(ar *arriving) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	ar.served = ar.err == nil
	return ar.err
}

// unverified returns the arriving blobs of which bytes went out.
func (t *blobTable) unverified() (ars []*arriving) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ar := range t.arriving {
		if ar.served {
			ars = append(ars, ar)
		}
	}
	return ars
}

// follow waits for the end of ar, which n was the first to open. When it fails, the kernel drops
// its pages, and reads fail from then on.
func (l *Layer) follow(ar *arriving, n *Node) {
	defer close(ar.ended)
	err := ar.data.Wait(l.ctx)
	if err != nil && l.ctx.Err() == nil {
		l.fail(n, err)
	}
	for _, node := range l.blobs.settle(ar, err) {
		// A page that is being read is waited for. If the mount is gone, so are they.
		_ = l.mount.conn.Device().DropPages(node)
	}
}

// readArriving answers a read of n, whose blob is arriving.
func (l *Layer) readArriving(
	a access, n *Node, ar *arriving, p []byte, off int64,
) (fuse.ReadResult, fuse.Status) {
	atOnce, cancel := context.WithCancel(l.ctx)
	cancel()
	got, err := ar.data.ReadAt(atOnce, p, off)
	if errors.Is(err, context.Canceled) {
		// It may be given up while it writes to its buffer, so that is its own.
		own, size, ok := []byte(nil), len(p), false
		own, err, ok = await(a, func(ctx context.Context) ([]byte, error) {
			b := make([]byte, size)
			n, err := ar.data.ReadAt(ctx, b, off)
			return b[:n], err
		}, func([]byte) {})
		if !ok {
			return nil, fuse.EIO // the caller has ended
		}
		p, got = own, len(own)
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = l.blobs.serve(ar)
	}
	if err != nil && l.ctx.Err() != nil {
		return nil, fuse.EIO
	}
	if err != nil {
		l.fail(n, err) // follow may come to it only after the action has ended
		return nil, fuse.EIO
	}
	return fuse.ReadResultData(p[:got]), fuse.OK
}

// Verify waits until every blob whose bytes were read is verified, and returns Err. When ctx ends
// Verify returns its error.
func (l *Layer) Verify(ctx context.Context) error {
	for _, ar := range l.blobs.unverified() {
		select {
		case <-ar.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return l.Err()
}
