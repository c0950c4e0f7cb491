package disk

import (
	"context"
	"fmt"
	"os"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/holders"
)

// A held is the blobs that an instance name has of a Store that is shared by others.
type held struct {
	store *Store
	name  holders.Name
}

var (
	_ cas.Content = (*Store)(nil)
	_ cas.Content = held{}
)

// Arriving implements Content: whoever begins to bring d has had it looked at.
func (s *Store) Arriving(context.Context, digest.Digest) error { return nil }

// Gained implements Content: all that is there is everybody's.
func (s *Store) Gained(digest.Digest) error { return nil }

// Isolated reports whether blobs belong to the instance names that have shown all of their bytes.
func (s *Store) Isolated() bool { return s.possession != nil }

// Of returns the blobs that an instance name has.
func (s *Store) Of(instance string) cas.Content {
	if s.possession == nil {
		return s
	}
	return held{s, holders.NameOf(instance)}
}

// FindMissing implements Readable.
func (h held) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	had, missing := h.store.possession.split(ds, h.name)
	gone, err := h.store.FindMissing(ctx, had) // evicted this moment
	return append(missing, gone...), err
}

// OpenBlob implements Readable.
func (h held) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if !h.Contains(d) {
		return nil, &cas.MissingError{Digests: []digest.Digest{d}}
	}
	return h.store.OpenBlob(ctx, d)
}

// ReadBlob implements Readable.
func (h held) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	if !h.Contains(d) {
		return nil, &cas.MissingError{Digests: []digest.Digest{d}}
	}
	return h.store.ReadBlob(ctx, d)
}

// Reading implements Readable.
func (h held) Reading(d digest.Digest, file *os.File) (sound func(), err error) {
	return h.store.Reading(d, file)
}

// Verdict implements Readable.
func (h held) Verdict(ctx context.Context, d digest.Digest) error { return h.store.Verdict(ctx, d) }

// Contains implements Content.
func (h held) Contains(d digest.Digest) bool { return h.store.possession.has(d, h.name) }

// ContainsSound implements Content.
func (h held) ContainsSound(ctx context.Context, d digest.Digest) (bool, error) {
	if !h.Contains(d) {
		return false, nil
	}
	return h.store.ContainsSound(ctx, d)
}

// PutBytes implements Content.
func (h held) PutBytes(ctx context.Context, d digest.Digest, b []byte) error {
	if err := h.store.PutBytes(ctx, d, b); err != nil {
		return err
	}
	return h.Gained(d)
}

// Arriving implements Content: what others have may be damaged, and would stay in the place of what comes.
func (h held) Arriving(ctx context.Context, d digest.Digest) error {
	_, err := h.store.ContainsSound(ctx, d)
	return err
}

// Gained implements Content.
func (h held) Gained(d digest.Digest) error { return h.store.possession.gain(d, h.name) }
