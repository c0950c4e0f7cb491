package vfs

import (
	"context"
	"fmt"
	"time"
)

// defaultVerifyEvery is Options.VerifyEvery if that is zero.
const defaultVerifyEvery = 24 * time.Hour

// dueSince returns since when a file must have been seen to be right, for a root that is
// looked at now.
func (f *FS) dueSince() time.Time {
	return time.Now().Add(-max(f.verifyEvery, 0))
}

// Vouch waits until the files that this package keeps for several roots, of which this one
// showed some, are known to be right: metadata images, and the copies that hard links
// lead to. They are read if Options.VerifyEvery says so. An error that wraps ErrDamaged says
// that the action saw something wrong; no other root will. By then OnBlob has been told
// of all that the action can have read until now. Nobody vouches for a root that is closed.
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

// vouchAhead reads beside the action what Vouch would have to wait for.
func (r *Root) vouchAhead() {
	due := r.fs.dueSince()
	if r.fs.verifyEvery > 0 && r.shared != nil && r.shared.Stale(due) {
		r.ahead.Go(func() { _ = r.shared.Vouch(r.ctx, due) }) // Vouch says it
	}
}
