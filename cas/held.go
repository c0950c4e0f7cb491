package cas

import (
	"context"
	"fmt"
	"os"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/holders"
)

// A held is the blobs that an instance name has of a Store that is shared by others.
type held struct {
	store *Store
	name  holders.Name
}

var _ content = held{}

// FindMissing implements readable.
func (h held) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	had, missing := h.store.possession.split(ds, h.name)
	gone, err := h.store.FindMissing(ctx, had) // evicted this moment
	return append(missing, gone...), err
}

// OpenBlob implements readable.
func (h held) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if !h.Contains(d) {
		return nil, &MissingError{Digests: []digest.Digest{d}}
	}
	return h.store.OpenBlob(ctx, d)
}

// ReadBlob implements readable.
func (h held) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	if !h.Contains(d) {
		return nil, &MissingError{Digests: []digest.Digest{d}}
	}
	return h.store.ReadBlob(ctx, d)
}

// noteSound implements readable.
func (h held) noteSound(d digest.Digest, p proof) { h.store.noteSound(d, p) }

// verdict implements readable.
func (h held) verdict(ctx context.Context, d digest.Digest) error { return h.store.verdict(ctx, d) }

// Contains implements content.
func (h held) Contains(d digest.Digest) bool { return h.store.possession.has(d, h.name) }

// containsSound implements content.
func (h held) containsSound(ctx context.Context, d digest.Digest) (bool, error) {
	if !h.Contains(d) {
		return false, nil
	}
	return h.store.containsSound(ctx, d)
}

// PutBytes implements content.
func (h held) PutBytes(ctx context.Context, d digest.Digest, b []byte) error {
	if err := h.store.PutBytes(ctx, d, b); err != nil {
		return err
	}
	return h.gained(d)
}

// arriving implements content: what others have may be damaged, and would stay in the place of what comes.
func (h held) arriving(ctx context.Context, d digest.Digest) error {
	_, err := h.store.containsSound(ctx, d)
	return err
}

// gained implements content.
func (h held) gained(d digest.Digest) error { return h.store.possession.gain(d, h.name) }
