package disk

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/holders"
)

// Isolated reports whether each instance name sees only blobs whose bytes it has uploaded.
func (s *Store) Isolated() bool { return s.possession != nil }

// Of returns the blobs that an instance name has.
func (s *Store) Of(instance string) cas.Content {
	if s.possession == nil {
		return everybodys{s, s.verifier}
	}
	return held{s, s.verifier, holders.NameOf(instance)}
}

// An everybodys is a Store whose blobs all instance names have.
type everybodys struct {
	*Store
	*Verifier
}

// Arriving implements Content: callers that upload d have verified it.
func (everybodys) Arriving(context.Context, digest.Digest) error { return nil }

// Gained implements Content: everyone has all blobs.
func (everybodys) Gained(digest.Digest) error { return nil }

// A held is the blobs of one instance name in a shared Store.
type held struct {
	store *Store
	*Verifier
	name holders.Name
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

// FindUnsound implements Content.
func (h held) FindUnsound(ctx context.Context, ds []digest.Digest, stale bool) ([]digest.Digest, error) {
	had, missing := h.store.possession.split(ds, h.name)
	unsound, err := h.Verifier.FindUnsound(ctx, had, stale)
	return append(missing, unsound...), err
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

// Contains implements Content.
func (h held) Contains(d digest.Digest) bool { return h.store.possession.has(d, h.name) }

// ContainsSound implements Content.
func (h held) ContainsSound(ctx context.Context, d digest.Digest) (bool, error) {
	if !h.Contains(d) {
		return false, nil
	}
	return h.Verifier.ContainsSound(ctx, d)
}

// PutBytes implements Content.
func (h held) PutBytes(ctx context.Context, d digest.Digest, b []byte) error {
	if err := h.store.PutBytes(ctx, d, b); err != nil {
		return err
	}
	return h.Gained(d)
}

// Arriving implements Content: a blob of others may be damaged, and would stay in the place of the
// new one.
func (h held) Arriving(ctx context.Context, d digest.Digest) error {
	_, err := h.Verifier.ContainsSound(ctx, d)
	return err
}

// Gained implements Content.
func (h held) Gained(d digest.Digest) error { return h.store.possession.gain(d, h.name) }

// Peek returns the blobs of s without side effects of reads: they do not count as a use. opened is
// called for each blob that is opened, by OpenBlob or ReadBlob.
func (s *Store) Peek(opened func(d digest.Digest)) cas.Readable { return peeked{s, s.verifier, opened} }

// A peeked is a Store that is read without a trace.
type peeked struct {
	store *Store
	*Verifier
	opened func(d digest.Digest)
}

// FindMissing implements Readable.
func (v peeked) FindMissing(ctx context.Context, ds []digest.Digest) (missing []digest.Digest, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	for _, d := range ds {
		if !v.store.Has(d) {
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
		return v.store.files.openBlob(d)
	}
	file, err := v.store.files.peek(d)
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
	return v.read(ctx, d, func() ([]byte, proof, error) {
		file, err := v.OpenBlob(ctx, d)
		if err != nil {
			return nil, proof{}, err
		}
		return readAll(file, d)
	})
}
