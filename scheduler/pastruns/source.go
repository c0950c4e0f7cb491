package pastruns

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

const (
	// maxBytes limits the directories that one search reads, cacheBytes the memory of those that
	// are kept for the next searches.
	maxBytes, cacheBytes = 8 << 20, 32 << 20
	// readWidth is how many directories one search reads concurrently.
	readWidth = 8
)

// A directoryKey is that of a directory of an instance name: others may not have it.
type directoryKey struct {
	instance string
	digest   digest.Digest
}

// A cache keeps the directories that searches used last.
type cache = bounded.Memory[directoryKey, *tree.Directory]

func newCache() *cache { return bounded.NewMemory[directoryKey, *tree.Directory](cacheBytes) }

// A source has the directories of one search. It implements lookback.Source, and belongs to one
// goroutine.
type source struct {
	storage  Storage
	instance string
	cache    *cache
	loaded   map[digest.Digest]*tree.Directory // by Load
	bytes    int64                             // of directories that were read
}

// LocalDirectory implements lookback.Source.
func (s *source) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	if dir, ok := s.loaded[d]; ok {
		return dir, true
	}
	dir, ok := s.cache.Get(directoryKey{s.instance, d})
	if ok {
		s.keep(d, dir)
	}
	return dir, ok
}

// keep makes a directory local until the end of the search, also if the cache drops it.
func (s *source) keep(d digest.Digest, dir *tree.Directory) {
	if s.loaded == nil {
		s.loaded = map[digest.Digest]*tree.Directory{}
	}
	s.loaded[d] = dir
}

// Directory implements lookback.Source.
func (s *source) Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if dir, ok := s.LocalDirectory(d); ok {
		return dir, nil
	}
	if err := s.Load(ctx, []digest.Digest{d}); err != nil {
		return nil, err
	}
	return s.loaded[d], nil
}

// Load implements lookback.Source.
func (s *source) Load(ctx context.Context, ds []digest.Digest) error {
	for _, d := range ds {
		if s.bytes += d.SizeBytes(); s.bytes > maxBytes {
			return fmt.Errorf("the directories to compare have more than %d bytes", int64(maxBytes))
		}
	}
	read := make([]*tree.Directory, len(ds))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readWidth)
	for i, d := range ds {
		group.Go(func() (err error) {
			read[i], err = s.read(ctx, d)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, d := range ds {
		s.keep(d, read[i])
		s.cache.Add(directoryKey{s.instance, d}, read[i], int64(read[i].Bytes()))
	}
	return nil
}

// read reads one directory from the storage and verifies it.
func (s *source) read(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	b, err := s.storage.Read(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("read directory %s: %w", d, err)
	}
	if digest.Of(d.Function(), b) != d {
		return nil, fmt.Errorf("read directory %s: the storage has other bytes", d)
	}
	dir, err := tree.Parse(d.Function(), b)
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", d, err)
	}
	return dir, nil
}
