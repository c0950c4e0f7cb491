package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// Peek returns the blobs of s, on which reading leaves no trace: it does not count as a use. opened is called for
// each blob that is opened, by OpenBlob or ReadBlob.
func (s *Store) Peek(opened func(d digest.Digest)) cas.Readable { return peeked{s, opened} }

type peeked struct {
	*Store
	opened func(d digest.Digest)
}

// FindMissing implements Readable.
func (v peeked) FindMissing(ctx context.Context, ds []digest.Digest) (missing []digest.Digest, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	for _, d := range ds {
		if !v.Has(d) {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// OpenBlob implements Readable.
func (v peeked) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	if d.IsEmptyBlob() {
		return v.open(d)
	}
	file, err := v.files.peek(d)
	if errors.Is(err, cas.ErrNotFound) {
		return nil, &cas.MissingError{Digests: []digest.Digest{d}}
	}
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	v.opened(d)
	return file, nil
}

// ReadBlob implements Readable.
func (v peeked) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	return readSound(ctx, d, v.Store, func() ([]byte, uint64, error) {
		file, err := v.OpenBlob(ctx, d)
		if err != nil {
			return nil, 0, err
		}
		return readAll(file, d)
	})
}
