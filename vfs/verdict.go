package vfs

import (
	"context"
	"fmt"
	"time"
)

// defaultVerifyEvery is Options.VerifyEvery if that is zero.
const defaultVerifyEvery = 24 * time.Hour

// dueSince returns since when a file must have been verified, for a root that is checked now.
func (f *FS) dueSince() time.Time {
	return time.Now().Add(-max(f.verifyEvery, 0))
}

// Vouch waits until the files that this package keeps for several roots, some of which this one
// showed, are verified: metadata images, and the copies for hard links. They are read if
// Options.VerifyEvery requires it. An error that wraps ErrDamaged means that the action saw damaged
// bytes; no other root will. By then OnBlob has been called for all that the action can have read
// until now. A closed root cannot be verified.
func (r *Root) Vouch(ctx context.Context) error {
	if r.ctx.Err() != nil {
		return nil
	}
	if r.images != nil && (r.spec.OnBlob != nil || r.spec.OnBlobRead != nil) {
		if err := r.images.TellBlobs(); err != nil {
			return fmt.Errorf("vouch for input root: %w", err)
		}
	}
	if r.shared == nil {
		return nil
	}
	if err := r.shared.Vouch(ctx, r.fs.dueSince()); err != nil {
		return fmt.Errorf("vouch for input root: %w", err)
	}
	return nil
}

// vouchAhead verifies in advance, while the action runs, the files that Vouch would have to wait for.
func (r *Root) vouchAhead() {
	due := r.fs.dueSince()
	if r.fs.verifyEvery > 0 && r.shared != nil && r.shared.Stale(due) {
		r.ahead.Go(func() { _ = r.shared.Vouch(r.ctx, due) }) // Vouch reports it
	}
}
