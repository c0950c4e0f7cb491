package disk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// copyBufferBytes is the size of the pieces in which blobs are written.
const copyBufferBytes = 128 << 10

// largeWriteBytes is the size of the pieces in which large blobs are written: the
// page cache holds a file in pages as large as its writes were, and random reads of
// one written in pieces of 128 KiB were measured to take 13 % longer.
const largeWriteBytes = 1 << 20

// buffers are for copying and hashing blobs at the same time.
type buffers struct {
	small sync.Pool // of *[]byte
	large sync.Pool // of *bufio.Writer
}

func newBuffers() *buffers {
	return &buffers{
		small: sync.Pool{New: func() any { b := make([]byte, copyBufferBytes); return &b }},
		large: sync.Pool{New: func() any { return bufio.NewWriterSize(nil, largeWriteBytes) }},
	}
}

// get returns a buffer, which put takes back.
func (b *buffers) get() *[]byte { return b.small.Get().(*[]byte) }

func (b *buffers) put(buffer *[]byte) { b.small.Put(buffer) }

// copyExactly copies r to w, and fails unless the copied bytes are d.
func (b *buffers) copyExactly(ctx context.Context, d digest.Digest, w io.Writer, r io.Reader) error {
	buffer := b.get()
	defer b.put(buffer)
	hasher := digest.NewHasher(d.Function())
	limited := &io.LimitedReader{R: untilDone{ctx, r}, N: d.SizeBytes()}
	flush := func() error { return nil }
	if d.SizeBytes() >= largeWriteBytes {
		large := b.large.Get().(*bufio.Writer)
		defer b.large.Put(large)
		large.Reset(w)
		w, flush = large, large.Flush
	}
	_, err := io.CopyBuffer(io.MultiWriter(hasher, w), limited, *buffer)
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	if limited.N > 0 {
		return fmt.Errorf("%w: only %d bytes came", cas.ErrCorrupt, hasher.SizeBytes())
	}
	// One byte more would be one too many.
	n, err := io.ReadFull(untilDone{ctx, r}, (*buffer)[:1])
	if n > 0 {
		return fmt.Errorf("%w: more than %d bytes came", cas.ErrCorrupt, d.SizeBytes())
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if got := hasher.Digest(); got != d {
		return fmt.Errorf("%w: it is %s", cas.ErrCorrupt, got)
	}
	return nil
}

// hashInto writes all of r to w and returns its digest. The end of ctx ends it between two pieces.
func (b *buffers) hashInto(ctx context.Context, w io.Writer, r io.Reader, fn digest.Function) (digest.Digest, error) {
	buffer := b.get()
	defer b.put(buffer)
	hasher := digest.NewHasher(fn)
	flush := func() error { return nil }
	if blob, ok := w.(*spaceWriter); ok && blob.digest.SizeBytes() >= largeWriteBytes {
		large := b.large.Get().(*bufio.Writer)
		defer b.large.Put(large)
		large.Reset(w)
		w, flush = large, large.Flush
	}
	if w == io.Discard {
		w = hasher
	} else {
		w = io.MultiWriter(hasher, w)
	}
	_, err := io.CopyBuffer(w, untilDone{ctx, r}, *buffer)
	return hasher.Digest(), errors.Join(err, flush())
}

// untilDone is r until ctx is done.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
