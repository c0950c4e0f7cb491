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

// Put stores the blob d with the bytes from r. If d exists already and is verified, Put returns
// without reading r; it may do the same if another caller uploads d at the same time. An existing
// unverified blob is verified first. If the bytes are not those of d, the error is ErrCorrupt; if
// the blob does not fit, ErrNoSpace. After an error nothing of it remains.
func (s *Store) Put(ctx context.Context, d digest.Digest, r io.Reader) error {
	err := s.PutPinned(ctx, d, r)
	if err != nil {
		return fmt.Errorf("put blob %s: %w", d, err)
	}
	s.files.unpin(d)
	return nil
}

// PutBytes stores the blob d with the bytes b. Unlike Put it verifies b even if d exists.
func (s *Store) PutBytes(ctx context.Context, d digest.Digest, b []byte) error {
	if d.IsZero() {
		return fmt.Errorf("put blob: %w: it is not set", digest.ErrInvalid)
	}
	// The size first: a hash of wrong size would be useless work.
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
	err = s.write(ctx, d, func(w *spaceWriter) error {
		_, err := w.Write(b)
		return err
	})
	if err != nil {
		return fmt.Errorf("put blob %s: %w", d, err)
	}
	s.files.unpin(d)
	return nil
}

// PutPinned is Put, and retains d once.
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
	return s.write(ctx, d, func(w *spaceWriter) error { return s.buffers.copyExactly(ctx, d, w, r) })
}

// write stores d with the data from fill, and leaves it pinned.
func (s *Store) write(ctx context.Context, d digest.Digest, fill func(*spaceWriter) error) error {
	w, err := newSpaceWriter(s.files, d)
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

// A spaceWriter writes a blob to a temporary file, reserves room in the store as it
// goes and makes room when the disk is full. Keep or Drop ends it.
type spaceWriter struct {
	files    *blobs
	file     *tamper.Own
	digest   digest.Digest // no more than its size is written
	written  int64
	reserved int64 // the reservation, which is the size at the end
	makeRoom func(cost int64) error
}

// Create starts a blob d, whose bytes are written in order. It rejects a blob that can never fit.
// The function of OnFull is the caller's to use.
func (s *Store) Create(d digest.Digest) (cas.Writer, error) {
	w, err := newSpaceWriter(s.files, d)
	if err != nil {
		return nil, err
	}
	w.makeRoom = s.files.reserve
	return w, nil
}

// OnFull sets a function that repeats op while op ends with ErrNoSpace and the function can discard
// something that Create has begun. All but writes of Create find room in this way. It must be set
// before the store is in use.
func (s *Store) OnFull(givingWay func(op func() error) error) { s.files.givingWay = givingWay }

// Fits returns an error if a blob of that size can never be stored.
func (s *Store) Fits(bytes int64) error { return s.files.fits(bytes) }

func newSpaceWriter(f *blobs, d digest.Digest) (*spaceWriter, error) {
	if err := f.fits(d.SizeBytes()); err != nil {
		return nil, err
	}
	file, err := f.createTemp()
	if err != nil {
		return nil, err
	}
	return &spaceWriter{files: f, file: tamper.NewOwn(file), digest: d, makeRoom: f.makeRoom}, nil
}

// Keep makes the completely written file the blob, and pins it. After an error Drop must still be
// called.
func (w *spaceWriter) Keep(ctx context.Context) error {
	// Closed before it becomes a blob: a file that is open for writing cannot be
	// executed (ETXTBSY).
	sealed, err := w.file.Seal()
	if err != nil {
		return err
	}
	defer w.file.Close() // if the blob exists already
	return w.files.settle(ctx, w.digest, arrival{from: w.file.Name(), seal: &sealed})
}

// Drop removes the file and releases its space.
func (w *spaceWriter) Drop() {
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
	w.GiveBack()
}

// GiveBack releases the space before the file is removed.
func (w *spaceWriter) GiveBack() {
	w.files.release(w.reserved)
	w.reserved = 0
}

// reserve sees to it that n more bytes can be written.
func (w *spaceWriter) reserve(n int64) error {
	need := w.written + n - w.reserved
	if need <= 0 {
		return nil
	}
	need = max(need, min(reserveBytes, w.digest.SizeBytes()-w.reserved))
	err := w.makeRoom(need)
	if err == nil {
		w.reserved += need
	}
	return err
}

func (w *spaceWriter) Write(p []byte) (int, error) {
	if err := w.reserve(int64(len(p))); err != nil {
		return 0, err
	}
	done := 0
	err := w.files.withSpace(w.reserved-w.written, func() error {
		n, err := w.file.Write(p[done:])
		done += n
		w.written += int64(n)
		return err
	})
	return done, err
}
