package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// StoreOptions are what may be chosen about a Store.
type StoreOptions struct {
	MaxBytes int64
	Logger   *zap.Logger
}

// A Store keeps blobs as files below one folder.
type Store struct{ dir string }

// StoreStats counts what a Store holds.
type StoreStats struct {
	Bytes, MaxBytes, Blobs, EvictedBlobs, EvictedBytes int64
}

// OpenStore opens or creates a Store.
func OpenStore(dir string, o StoreOptions) (*Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	for _, fn := range digest.Functions() {
		if err := os.WriteFile(s.path(fn.Empty()), nil, 0o444); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close closes.
func (s *Store) Close() error { return nil }

// Dir is the folder.
func (s *Store) Dir() string { return s.dir }

// TempDir is a folder.
func (s *Store) TempDir() string { return filepath.Join(s.dir, "tmp") }

func (s *Store) path(d digest.Digest) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%s-%d", d.Function(), d.Hash(), d.SizeBytes()))
}

// Put stores.
func (s *Store) Put(ctx context.Context, d digest.Digest, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, d.SizeBytes()+1))
	if err != nil {
		return err
	}
	return s.PutBytes(ctx, d, b)
}

// PutBytes stores.
func (s *Store) PutBytes(_ context.Context, d digest.Digest, b []byte) error {
	if digest.Of(d.Function(), b) != d {
		return fmt.Errorf("put %s: %w", d, ErrCorrupt)
	}
	return os.WriteFile(s.path(d), b, 0o444)
}

// Adopt takes a file.
func (s *Store) Adopt(_ context.Context, path string, d digest.Digest) error {
	return os.Rename(path, s.path(d))
}

// OpenBlob opens.
func (s *Store) OpenBlob(_ context.Context, d digest.Digest) (*os.File, error) {
	f, err := os.Open(s.path(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil, &MissingError{Digests: []digest.Digest{d}}
	}
	return f, err
}

// ReadBlob reads.
func (s *Store) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	f, err := s.OpenBlob(ctx, d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	_, err = b.ReadFrom(f)
	return b.Bytes(), err
}

// Contains reports.
func (s *Store) Contains(d digest.Digest) bool {
	_, err := os.Stat(s.path(d))
	return err == nil
}

// FindMissing lists.
func (s *Store) FindMissing(_ context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	var missing []digest.Digest
	for _, d := range ds {
		if !s.Contains(d) {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// Pin pins.
func (s *Store) Pin(d digest.Digest) (unpin func(), ok bool) { return func() {}, s.Contains(d) }

// Stats counts.
func (s *Store) Stats() StoreStats { return StoreStats{} }
