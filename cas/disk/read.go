package disk

import (
	"context"
	"io"
	"os"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// smallBlob is the size up to which a blob is read without an os.File.
const smallBlob = 64 << 10

// ReadBlob returns the bytes of d, and counts that as a use. It hashes them: a damaged blob is set
// aside and missing from then on. The errors are the same as those of OpenBlob.
func (s *Store) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	if d.IsEmptyBlob() {
		return nil, nil
	}
	return s.verifier.read(ctx, d, func() ([]byte, proof, error) {
		if d.SizeBytes() <= smallBlob {
			return s.files.read(d, d.SizeBytes())
		}
		file, _, err := s.files.open(d)
		if err != nil {
			return nil, proof{}, err
		}
		return readAll(file, d)
	})
}

// ReadLocal returns the bytes of d if it is present and right, and counts it as used. It waits only
// for the disk.
func (s *Store) ReadLocal(d digest.Digest) ([]byte, bool) {
	if d.IsEmptyBlob() {
		return nil, true
	}
	b, err := s.files.glance(d, d.SizeBytes())
	return b, err == nil && digest.Of(d.Function(), b) == d
}

// readAll returns the bytes of the blob d and the proof of their read, and closes the file.
func readAll(file *os.File, d digest.Digest) ([]byte, proof, error) {
	defer file.Close()
	r, err := beginReading(file.Fd())
	if err != nil {
		return nil, proof{}, err
	}
	b, err := readFull(file, d)
	if err != nil {
		return nil, proof{}, err
	}
	return b, r.proof(), nil
}

// readFull returns as many bytes of file as the blob d has.
func readFull(file *os.File, d digest.Digest) ([]byte, error) {
	b := make([]byte, d.SizeBytes())
	_, err := io.ReadFull(file, b)
	return b, err
}
