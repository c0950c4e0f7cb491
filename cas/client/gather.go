package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// gatherBelow is the size up to which blobs that are read one by one go in common calls.
	gatherBelow = 64 << 10
	// maxReads is how many such calls for one instance name are in flight. With one, the next
	// caller would wait up to a round trip more than its own; with many, nothing would be gathered.
	maxReads = 2
	// maxGathered limits the blobs of such a call: the longest answer is below the limit of servers
	// that announce none.
	maxGathered = 50
)

// errAbandoned is the error for callers whose call was made by another one that has left.
var errAbandoned = errors.New("the caller has gone")

// A readings gathers reads of small blobs, which may be many at a time, in a few calls. A caller
// that finds fewer than maxReads in flight makes one at once; further callers wait, and when one
// has ended the first of them makes the next one for all. So it needs no goroutine. mu takes no
// other lock. The zero readings is ready for use.
type readings struct {
	mu    sync.Mutex
	lines map[readLine]*readQueue // guarded by mu; those with calls in flight
}

// A readLine has the reads that one call can serve.
type readLine struct {
	instance string
	fn       digest.Function
}

type readQueue struct {
	calls   int
	waiting []*reading
}

// A reading is one caller's read, until its blob arrives or fails.
type reading struct {
	digest digest.Digest
	// turn is closed when the read has ended, or when the read must make a call for batch, which
	// begins with its own blob. The fields below are written before that.
	turn  chan struct{}
	batch []*reading
	data  []byte
	err   error
}

// join adds a reading. It waits for a call, or makes one if there is room.
func (rs *readings) join(l readLine, d digest.Digest) *reading {
	r := &reading{digest: d, turn: make(chan struct{})}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	q := rs.lines[l]
	if q == nil {
		if rs.lines == nil {
			rs.lines = map[readLine]*readQueue{}
		}
		q = &readQueue{}
		rs.lines[l] = q
	}
	q.waiting = append(q.waiting, r)
	if q.calls < maxReads {
		q.calls++
		q.elect()
	}
	return r
}

// elect has the first that waits make a call.
func (q *readQueue) elect() {
	n := min(len(q.waiting), maxGathered)
	first := q.waiting[0]
	first.batch = slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	close(first.turn)
}

// leave removes a waiting read. One that is to make a call must do that; then leave is false.
func (rs *readings) leave(l readLine, r *reading) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if q := rs.lines[l]; q != nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(x *reading) bool { return x == r })
	}
	return r.batch == nil
}

// end follows a call.
func (rs *readings) end(l readLine) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	q := rs.lines[l]
	if len(q.waiting) > 0 {
		q.elect()
		return
	}
	if q.calls--; q.calls == 0 {
		delete(rs.lines, l)
	}
}

// readGathered is Read of a small blob.
func (c *Client) readGathered(ctx context.Context, d digest.Digest) ([]byte, error) {
	rs, l := &c.link.readings, readLine{c.instance, c.fn}
	for {
		r := rs.join(l, d)
		select {
		case <-r.turn:
		case <-ctx.Done():
			if rs.leave(l, r) {
				return nil, ctx.Err()
			}
		}
		if r.batch != nil {
			c.readAll(ctx, r.batch)
			rs.end(l)
		}
		if r.err != errAbandoned {
			return r.data, r.err
		}
	}
}

// readAll makes the call for a batch, in the context of its first.
func (c *Client) readAll(ctx context.Context, batch []*reading) {
	ds := make([]digest.Digest, len(batch))
	for i, r := range batch {
		ds[i] = r.digest
	}
	var mu sync.Mutex
	found := make(map[digest.Digest][]byte, len(batch)) // guarded by mu
	err := c.Fetch(ctx, ds, func(d digest.Digest, r io.Reader) error {
		b, err := readBlob(d, r)
		if err == nil {
			mu.Lock()
			found[d] = b
			mu.Unlock()
		}
		return err
	})
	for i, r := range batch {
		var there bool
		if r.data, there = found[r.digest]; !there {
			r.err = errorOf(r.digest, err)
			if i > 0 && ctx.Err() != nil {
				r.err = errAbandoned
			}
		}
		if i > 0 {
			close(r.turn)
		}
	}
}

// errorOf is the error for a blob that was not delivered, by the error of Fetch.
func errorOf(d digest.Digest, err error) error {
	var failed *cas.FetchError
	var missing *cas.MissingError
	switch {
	case errors.As(err, &failed) && failed.Blobs[d] != nil:
		return &cas.FetchError{Blobs: map[digest.Digest]error{d: failed.Blobs[d]}}
	case errors.As(err, &failed), errors.As(err, &missing):
		return &cas.MissingError{Digests: []digest.Digest{d}}
	}
	return err
}

// readBlob reads all of a blob.
func readBlob(d digest.Digest, r io.Reader) ([]byte, error) {
	// The size is only believed as far as bytes arrive.
	buf := bytes.NewBuffer(make([]byte, 0, min(d.SizeBytes(), cas.StreamAbove)+bytes.MinRead))
	_, err := buf.ReadFrom(r)
	return buf.Bytes(), err
}
