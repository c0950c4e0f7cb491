package disk

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
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
	s.files.unpin(d)
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
	there, err := s.verifier.ContainsSound(ctx, d)
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
	s.files.unpin(d)
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
		return s.buffers.copyExactly(ctx, d, io.Discard, r)
	}
	if there, err := s.verifier.pinSound(ctx, d); there || err != nil {
		return err
	}
	return s.write(ctx, d, func(w *roomWriter) error { return s.buffers.copyExactly(ctx, d, w, r) })
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
	files    *blobs
	file     *tamper.Own
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

func newRoomWriter(f *blobs, d digest.Digest) (*roomWriter, error) {
	if err := f.fits(d.SizeBytes()); err != nil {
		return nil, err
	}
	file, err := f.createTemp()
	if err != nil {
		return nil, err
	}
	return &roomWriter{files: f, file: tamper.NewOwn(file), digest: d}, nil
}

// Keep makes the file, which is written wholly, the blob, and pins it. After an
// error Drop is still to be called.
func (w *roomWriter) Keep(ctx context.Context) error {
	// Closed before it becomes a blob: a file that is open for writing cannot be
	// executed (ETXTBSY).
	sealed, err := w.file.Seal()
	if err != nil {
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
