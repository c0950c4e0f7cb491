package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// smallBlob is the size up to which a blob is read without an os.File.
const smallBlob = 64 << 10

// ReadBlob returns the bytes of d, which counts as a use. They are hashed: a blob that
// is damaged is set aside and not there. Errors are those of OpenBlob.
func (s *Store) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	if d.IsEmptyBlob() {
		return nil, nil
	}
	return readSound(ctx, d, s, func() ([]byte, uint64, error) {
		if d.SizeBytes() <= smallBlob {
			return s.files.read(d, d.SizeBytes())
		}
		file, _, err := s.files.open(d)
		if err != nil {
			return nil, 0, err
		}
		return readAll(file, d)
	})
}

// readSound returns the bytes of d that read yields with the mark that their file had
// before. Wrong ones have the store look at d, and are read again if it is right.
func readSound(
	ctx context.Context, d digest.Digest, s *Store, read func() ([]byte, uint64, error),
) ([]byte, error) {
	for range 2 {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read blob %s: %w", d, err)
		}
		began := time.Now()
		b, m, err := read()
		if errors.Is(err, cas.ErrNotFound) {
			return nil, &cas.MissingError{Digests: []digest.Digest{d}}
		}
		if err == nil && digest.Of(d.Function(), b) == d {
			s.noteSound(d, provenAt(began, m))
			return b, nil
		}
		if failed := s.Verdict(ctx, d); failed != nil {
			return nil, failed
		}
		if err != nil {
			return nil, fmt.Errorf("read blob %s: %w", d, err)
		}
	}
	return nil, fmt.Errorf("read blob %s: %w: it changes", d, cas.ErrCorrupt)
}

// Reading says that all of a file of d is read now; sound, that it was right.
func (s *Store) Reading(d digest.Digest, file *os.File) (sound func(), err error) {
	began := time.Now()
	m, err := markOfOpen(file.Fd())
	return func() { s.noteSound(d, provenAt(began, m)) }, err
}

// Verdict looks at d, of which somebody has read wrong bytes. A damaged one is missing
// from now on.
func (s *Store) Verdict(ctx context.Context, d digest.Digest) error {
	err := s.Verify(ctx, d)
	if errors.Is(err, cas.ErrCorrupt) {
		return &cas.MissingError{Digests: []digest.Digest{d}}
	}
	return err
}

// noteSound notes that somebody has read and hashed a file of d that had this mark. It may be one that was evicted meanwhile, or
// changed: then nothing is known of the one that is there.
func (s *Store) noteSound(d digest.Digest, p proof) {
	s.verifier.count(d.SizeBytes())
	generation, _, ok := s.files.look(d)
	if !ok || !s.files.proveRead(d, generation, p, noteAgain) {
		return
	}
	if m, err := markOf(s.files.path(d)); err == nil && m == p.mark {
		s.files.prove(d, generation, p)
	}
}

// noteAgain is how many seconds older than what is known a verification may be.
const noteAgain = 60

// ReadLocal returns the bytes of d, if it is there and right, which counts as a use. It waits for
// nothing but the disk.
func (s *Store) ReadLocal(d digest.Digest) ([]byte, bool) {
	file, err := s.open(d)
	if err != nil {
		return nil, false
	}
	b, _, err := readAll(file, d)
	return b, err == nil && digest.Of(d.Function(), b) == d
}

// readAll returns the bytes of the blob d and the mark of its file before they were read,
// and closes the file.
func readAll(file *os.File, d digest.Digest) ([]byte, uint64, error) {
	defer file.Close()
	m, err := markOfOpen(file.Fd())
	if err != nil {
		return nil, 0, err
	}
	b := make([]byte, d.SizeBytes())
	if _, err := io.ReadFull(file, b); err != nil {
		return nil, 0, err
	}
	return b, m, nil
}
