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
	// missingTimeout bounds how long an action that lacks an input waits to learn what else it lacks.
	missingTimeout = 10 * time.Second
	// maxAsked bounds the inputs that are asked for then, maxMissing those that a client is told of.
	maxAsked, maxMissing = 100_000, 10_000
)

// A Search finds what storage lacks of an action's inputs.
type Search struct {
	Named   []digest.Digest // what the action names beside Root
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

// All returns err, or where it says that an input is missing, one that says what else the
// storage lacks of the action's inputs: who uploads one at a time tries as often. What cannot be
// found out within bounds is left out.
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

// collect adds what the action names and, level by level, what its input root does, as far as
// that can be read.
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
		// One call for all of the level; what does not come is not there below.
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
