package disk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// Put stores the blob d, whose bytes r yields. When d is there already and vouched for, it
// returns without reading r; so it may when another caller brings d meanwhile. One that
// is not vouched for is verified first.
// Bytes that are not d's end in ErrCorrupt, a blob that does not fit in
// ErrNoSpace, and nothing of it stays behind.
func (s *Store) Put(ctx context.Context, d digest.Digest, r io.Reader) error {
	err := s.PutPinned(ctx, d, r)
	if err != nil {
		return fmt.Errorf("put blob %s: %w", d, err)
	}
	s.unpin(d)
	return nil
}

// PutBytes stores the blob d, whose bytes are b. Other than Put it verifies b
// even when d is there.
func (s *Store) PutBytes(ctx context.Context, d digest.Digest, b []byte) error {
	if d.IsZero() {
		return fmt.Errorf("put blob: %w: it is not set", digest.ErrInvalid)
	}
	// The size first: hashing what cannot match is for nothing.
	if int64(len(b)) != d.SizeBytes() {
		return fmt.Errorf("put blob %s: %w: %d bytes came", d, cas.ErrCorrupt, len(b))
	}
	if got := digest.Of(d.Function(), b); got != d {
		return fmt.Errorf("put blob %s: %w: it is %s", d, cas.ErrCorrupt, got)
	}
	there, err := s.ContainsSound(ctx, d)
	if err != nil {
		return fmt.Errorf("put blob %s: %w", d, err)
	}
	if there {
		return nil
	}
	err = s.write(ctx, d, func(w *roomWriter) error {
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		return fmt.Errorf("put blob %s: %w", d, err)
	}
	s.unpin(d)
	return nil
}

// PutPinned does what Put does and leaves d retained once.
func (s *Store) PutPinned(ctx context.Context, d digest.Digest, r io.Reader) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.IsZero() {
		return fmt.Errorf("%w: it is not set", digest.ErrInvalid)
	}
	if d.IsEmptyBlob() {
		return s.verify(ctx, d, io.Discard, r)
	}
	if there, err := s.pinSound(ctx, d); there || err != nil {
		return err
	}
	return s.write(ctx, d, func(w *roomWriter) error { return s.verify(ctx, d, w, r) })
}

// verify copies r to w, and fails unless what it copied is d.
func (s *Store) verify(ctx context.Context, d digest.Digest, w io.Writer, r io.Reader) error {
	buffer := s.buffers.Get().(*[]byte)
	defer s.buffers.Put(buffer)
	hasher := digest.NewHasher(d.Function())
	limited := &io.LimitedReader{R: untilDone{ctx, r}, N: d.SizeBytes()}
	flush := func() error { return nil }
	if d.SizeBytes() >= largeWriteBytes {
		large := s.largeBuffers.Get().(*bufio.Writer)
		defer s.largeBuffers.Put(large)
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

// write stores d as what fill writes, and leaves it pinned.
func (s *Store) write(ctx context.Context, d digest.Digest, fill func(*roomWriter) error) error {
	w, err := newRoomWriter(s.files, d)
	if err != nil {
		return err
	}
	err = fill(w)
	if err == nil {
		err = w.Keep(ctx)
	}
	if err != nil {
		w.Drop()
	}
	return err
}

// reserveBytes is how much room a blob gets ahead of the bytes that have come:
// an announced size alone must not empty the store.
const reserveBytes = 16 << 20

// A roomWriter writes a blob to a temporary file, reserves room in the store as it
// goes and makes room when the disk is full. Keep or Drop ends it.
type roomWriter struct {
	files    *files[digest.Digest]
	file     *own
	digest   digest.Digest // no more than its size is written
	written  int64
	reserved int64 // the reservation, which is the size once all is written
}

// Create takes d in, whose bytes are written in their order. What can never fit is refused.
func (s *Store) Create(d digest.Digest) (cas.Writer, error) {
	w, err := newRoomWriter(s.files, d)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Fits says why a blob of so many bytes can never be put.
func (s *Store) Fits(bytes int64) error { return s.files.fits(bytes) }

func newRoomWriter(f *files[digest.Digest], d digest.Digest) (*roomWriter, error) {
	if err := f.fits(d.SizeBytes()); err != nil {
		return nil, err
	}
	file, err := f.createTemp()
	if err != nil {
		return nil, err
	}
	return &roomWriter{files: f, file: newOwn(file), digest: d}, nil
}

// Keep makes the file, which is written wholly, the blob, and pins it. After an
// error Drop is still to be called.
func (w *roomWriter) Keep(ctx context.Context) error {
	// Closed before it becomes a blob: a file that is open for writing cannot be
	// executed (ETXTBSY).
	sealed := w.file.seal()
	if err := w.file.Close(); err != nil {
		return err
	}
	return w.files.settle(ctx, w.digest, arrival{from: w.file.Name(), seal: &sealed})
}

// Drop removes the file and gives its room back.
func (w *roomWriter) Drop() {
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
	w.GiveBack()
}

// GiveBack gives the room back before the file is removed.
func (w *roomWriter) GiveBack() {
	w.files.release(w.reserved)
	w.reserved = 0
}

// reserve sees to it that n more bytes can be written.
func (w *roomWriter) reserve(n int64) error {
	need := w.written + n - w.reserved
	if need <= 0 {
		return nil
	}
	need = max(need, min(reserveBytes, w.digest.SizeBytes()-w.reserved))
	err := w.files.reserve(need)
	if err == nil {
		w.reserved += need
	}
	return err
}

func (w *roomWriter) Write(p []byte) (int, error) {
	if err := w.reserve(int64(len(p))); err != nil {
		return 0, err
	}
	done := 0
	err := w.files.withRoom(w.reserved-w.written, func() error {
		n, err := w.file.Write(p[done:])
		done += n
		w.written += int64(n)
		return err
	})
	return done, err
}
