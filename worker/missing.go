package worker

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

// allMissing returns err, or where it says that an input is missing, one that says what else the
// storage lacks of the action's inputs: who uploads one at a time tries as often. What cannot be
// found out within bounds is left out.
func (a *action) allMissing(ctx context.Context, err error) error {
	var first *cas.MissingError
	if !errors.As(err, &first) || a.inputs == nil || ctx.Err() != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, missingTimeout)
	defer cancel()
	lacking, asked := map[digest.Digest]struct{}{}, map[digest.Digest]struct{}{}
	for _, d := range first.Digests {
		lacking[d] = struct{}{}
	}
	a.collectInputs(limited, asked)
	more, askErr := a.storage.FindMissing(limited, slices.Collect(maps.Keys(asked)))
	if askErr != nil {
		a.log.Warn("not all missing inputs may be known", zap.Error(askErr))
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

// collectInputs adds what the action names and, level by level, what its input root does, as far as
// that can be read.
func (a *action) collectInputs(ctx context.Context, inputs map[digest.Digest]struct{}) {
	add := func(d digest.Digest) (isNew bool) {
		_, known := inputs[d]
		if !known && len(inputs) < maxAsked && !d.IsEmptyBlob() {
			inputs[d] = struct{}{}
			return true
		}
		return false
	}
	var level []digest.Digest
	if d, err := digest.FromProto(a.fn, a.message.GetCommandDigest()); err == nil {
		add(d)
	}
	if d, err := digest.FromProto(a.fn, a.message.GetInputRootDigest()); err == nil && add(d) {
		level = append(level, d)
	}
	for len(level) > 0 && ctx.Err() == nil {
		// One call for all of the level; what does not come is not there below.
		_ = a.inputs.Load(ctx, level)
		var next []digest.Digest
		for _, d := range level {
			dir, ok := a.inputs.LocalDirectory(d)
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
