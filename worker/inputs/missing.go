package inputs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	inputtree "github.com/forerunner-build/forerunner/cas/tree"
)

const (
	// missingTimeout limits how long an action that lacks an input waits to learn which others are
	// missing.
	missingTimeout = 10 * time.Second
	// maxAsked limits the inputs in that question, maxMissing those in the error.
	maxAsked, maxMissing = 100_000, 10_000
)

// A Search finds the inputs of an action that storage lacks.
type Search struct {
	Named   []digest.Digest // the action's blobs besides Root
	Root    digest.Digest   // of the input root; zero: there is none
	Inputs  Loader
	Storage Storage
	Log     *zap.Logger
}

// Loader is the part of fetch.ReadThrough that a Search needs.
type Loader interface {
	LocalDirectories
	Load(ctx context.Context, ds []digest.Digest) error
}

// Storage is the part of a storage's client that it needs.
type Storage interface {
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
}

// All returns err or, if that reports a missing input, an error with all inputs of the action that
// the storage lacks: a client that uploads one at a time would need as many attempts. Inputs that
// cannot be determined within the limits are omitted.
func (s *Search) All(ctx context.Context, err error) error {
	var first *cas.MissingError
	if !errors.As(err, &first) || ctx.Err() != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, missingTimeout)
	defer cancel()
	lacking, asked := map[digest.Digest]struct{}{}, map[digest.Digest]struct{}{}
	for _, d := range first.Digests {
		lacking[d] = struct{}{}
	}
	s.collect(limited, asked)
	more, askErr := s.Storage.FindMissing(limited, slices.Collect(maps.Keys(asked)))
	if askErr != nil {
		s.Log.Warn("the list of missing inputs may be incomplete", zap.Error(askErr))
	}
	for _, d := range more {
		if len(lacking) < maxMissing {
			lacking[d] = struct{}{}
		}
	}
	if len(lacking) == len(first.Digests) {
		return err
	}
	all := slices.SortedFunc(maps.Keys(lacking), func(x, y digest.Digest) int {
		return strings.Compare(x.String(), y.String())
	})
	return fmt.Errorf("%v; the storage lacks all of: %w", err, &cas.MissingError{Digests: all})
}

// collect adds the action's own blobs and, level by level, the readable blobs of its input root.
func (s *Search) collect(ctx context.Context, inputs map[digest.Digest]struct{}) {
	add := func(d digest.Digest) (isNew bool) {
		_, known := inputs[d]
		if !known && len(inputs) < maxAsked && !d.IsEmptyBlob() {
			inputs[d] = struct{}{}
			return true
		}
		return false
	}
	var level []digest.Digest
	for _, d := range s.Named {
		add(d)
	}
	if s.Root != (digest.Digest{}) && add(s.Root) {
		level = append(level, s.Root)
	}
	for len(level) > 0 && ctx.Err() == nil {
		// One call for the whole level; missing directories have no children here.
		_ = s.Inputs.Load(ctx, level)
		var next []digest.Digest
		for _, d := range level {
			dir, ok := s.Inputs.LocalDirectory(d)
			if !ok {
				continue
			}
			for i := range dir.Len() {
				entry := dir.At(i)
				isNew := entry.Kind != inputtree.Symlink && add(entry.Digest)
				if isNew && entry.Kind == inputtree.Dir {
					next = append(next, entry.Digest)
				}
			}
		}
		level = next
	}
}
