package fetch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A delivery writes the blobs of a batch to the store as one call of Fetch delivers them. Hundreds
// of small ones come at the same time, and writing them all may take longer than the call: they are
// kept in memory, so that blobs with waiting callers are written first.
type delivery struct {
	t    *ReadThrough
	b    *batch
	more chan struct{} // has one place; signals that held has grown

	mu      sync.Mutex
	refused map[digest.Digest]refusal // guarded by mu
	held    map[digest.Digest][]byte  // blobs to write; guarded by mu
	order   []digest.Digest           // of held, and some that were; guarded by mu
}

// A refusal is why a blob was not taken.
type refusal struct {
	err error
	// told: Fetch was told the outcome. It may have requested a wrong blob again, and then knows
	// better.
	told bool
}

// holds reports whether the blobs of b are kept in memory first: they fit into one message.
func (b *batch) holds() bool {
	left := int64(cas.BatchBytes)
	for _, d := range b.digests {
		if left -= d.SizeBytes(); left < 0 {
			return false
		}
	}
	return len(b.digests) > 1
}

// fetch fetches the blobs of b from f.
func (t *ReadThrough) fetch(ctx context.Context, f cas.Fetcher, b *batch) {
	l := &delivery{t: t, b: b, more: make(chan struct{}, 1), refused: map[digest.Digest]refusal{}}
	take, finish := l.write, func() {}
	if b.holds() {
		l.held = make(map[digest.Digest][]byte, len(b.digests))
		take, finish = l.hold, l.writeBeside(ctx)
	}
	err := f.Fetch(ctx, b.digests, func(d digest.Digest, r io.Reader) error {
		if b.flights[d] == nil {
			return fmt.Errorf("blob %s was not asked for", d)
		}
		if fl := b.flights[d]; fl.behind && !gathered(d) {
			r = &yieldingReader{ctx: ctx, x: t.shared, fl: fl, from: r}
		}
		return take(ctx, d, r)
	})
	finish()
	for d, fl := range b.flights {
		t.end(fl, whyNotFetched(d, l.refused[d], err))
	}
}

// writeBeside writes held blobs until finish is called, which returns when all are written.
func (l *delivery) writeBeside(ctx context.Context) (finish func()) {
	var writing sync.WaitGroup
	all := make(chan struct{})
	writing.Go(func() {
		for last := false; ; {
			d, data, ok := l.next()
			switch {
			case ok:
				_ = l.write(ctx, d, bytes.NewReader(data)) // it is noted
			case last:
				return
			default:
				select {
				case <-l.more:
				case <-all:
					last = true
				}
			}
		}
	})
	return func() {
		close(all)
		writing.Wait()
	}
}

// hold keeps a blob in memory. Whether it is d is seen when it is written.
func (l *delivery) hold(_ context.Context, d digest.Digest, r io.Reader) error {
	data := bytes.NewBuffer(make([]byte, 0, d.SizeBytes()+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(r, d.SizeBytes()+1)); err != nil {
		return l.refuse(d, err, true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[d] = data.Bytes()
	l.order = append(l.order, d)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return nil
}

// write fetches a blob into the store.
func (l *delivery) write(ctx context.Context, d digest.Digest, r io.Reader) error {
	if err := l.t.store.PutPinned(ctx, d, r); err != nil {
		return l.refuse(d, err, l.held == nil)
	}
	l.t.end(l.b.flights[d], nil)
	return nil
}

func (l *delivery) refuse(d digest.Digest, err error, told bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused[d] = refusal{err, told}
	return err
}

// next takes the blob to write next: the one with the latest waiting caller, or else in the order
// of arrival.
func (l *delivery) next() (digest.Digest, []byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		d, ok := l.t.wanted(l.b)
		if !ok && len(l.order) > 0 {
			d, ok = l.order[0], true
			l.order = l.order[1:]
		}
		if !ok {
			return d, nil, false
		}
		if data, ok := l.held[d]; ok {
			delete(l.held, d)
			return d, data, true
		}
	}
}

// wanted takes one of the blobs of b for which a caller began to wait after its start, the latest
// first.
func (x *shared) wanted(b *batch) (d digest.Digest, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := len(b.wanted) - 1
	if last < 0 {
		return d, false
	}
	d = b.wanted[last]
	b.wanted = b.wanted[:last]
	return d, true
}
