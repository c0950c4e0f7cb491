package disk

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// lookFor bounds for how long FindUnsound reads what it has doubts about.
const lookFor = 10 * time.Second

// FindUnsound returns those of ds that are not there, in their order, having looked at the files of the others, which
// count as used. Where the kernel knows of a change since the bytes were hashed, or since the store was opened, they are
// hashed; with stale, also where that was too long ago. What is wrong is not there any more. What cannot be read, or not within
// lookFor, is reported as well: who brings it is told why it is not taken, and to bring what is there does no harm.
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

// doubtful reports whether d is to be read before it is said to be there.
func (v *Verifier) doubtful(d digest.Digest, stale bool) bool {
	_, known, ok := v.files.look(d)
	return !ok || known.doubt || stale && !v.fresh(known) || !v.hasMark(d, known.mark)
}
