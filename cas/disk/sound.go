package disk

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// lookFor limits how long FindUnsound reads doubtful blobs.
const lookFor = 10 * time.Second

// FindUnsound returns the missing ones of ds, in their order. It checks the files of the others,
// and counts them as used. It hashes a file if the kernel knows of a change since the last hash, or
// since the store was opened; with stale, also if the last hash is too old. Damaged blobs are
// missing from then on. It also returns blobs that cannot be read, or not within lookFor: uploading
// these again does no harm, and the upload then reports why the store does not take them.
func (v *Verifier) FindUnsound(ctx context.Context, ds []digest.Digest, stale bool) ([]digest.Digest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	missing, lacks := v.files.useAll(ds), true
	unsound := make(map[digest.Digest]*bool, len(missing))
	for _, d := range missing {
		unsound[d] = &lacks
	}
	limited, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, d := range ds {
		if unsound[d] != nil || d.IsEmptyBlob() || !v.doubtful(d, stale) {
			continue
		}
		wrong := new(bool)
		unsound[d] = wrong
		group.Go(func() error {
			sound, err := v.verifyLate(limited, d)
			*wrong = !sound || err != nil
			return nil
		})
	}
	_ = group.Wait()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("find missing blobs: %w", context.Cause(ctx))
	}
	var found []digest.Digest
	for _, d := range ds {
		if wrong := unsound[d]; wrong != nil && *wrong {
			found = append(found, d)
		}
	}
	return found, nil
}

// doubtful reports whether d must be read before it counts as present.
func (v *Verifier) doubtful(d digest.Digest, stale bool) bool {
	_, known, ok := v.files.look(d)
	return !ok || known.doubt || stale && !v.fresh(known) || !v.hasMark(d, known.mark)
}
