package vfs

import (
	"context"
	"errors"
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
	r.tellUnseen()
	if err := r.lower.vouch(ctx, r.fs.dueSince()); err != nil {
		return fmt.Errorf("vouch for input root: %w", err)
	}
	return nil
}

// vouchAhead reads beside the action what Vouch would have to wait for.
func (r *Root) vouchAhead() {
	due := r.fs.dueSince()
	if r.fs.verifyEvery > 0 && r.lower.stale(due) {
		r.loads.Go(func() { _ = r.lower.vouch(r.ctx, due) }) // Vouch says it
	}
}

func (noInputs) stale(time.Time) bool                   { return false }
func (noInputs) vouch(context.Context, time.Time) error { return nil }

func (l fuseLayer) stale(due time.Time) bool {
	for _, g := range l.r.grafts {
		if !g.image.said.Since(due) {
			return true
		}
	}
	return false
}

func (l fuseLayer) vouch(ctx context.Context, due time.Time) error {
	for _, g := range l.r.grafts {
		if err := l.r.fs.images.verify(ctx, g.image, due); err != nil {
			return err
		}
	}
	return nil
}

// copies calls f for every copy that the root has a link to, until it returns false.
func (l *linkLayer) copies(f func(*sharedFile) bool) {
	for _, s := range l.links {
		if !f(s) {
			return
		}
	}
	for _, t := range l.kept {
		for _, s := range t.links {
			if !f(s) {
				return
			}
		}
	}
}

func (l *linkLayer) stale(due time.Time) (stale bool) {
	l.copies(func(s *sharedFile) bool {
		stale = !s.said.Since(due)
		return !stale
	})
	return stale
}

func (l *linkLayer) vouch(ctx context.Context, due time.Time) error {
	const most = 5 // in the error
	var errs []error
	l.copies(func(s *sharedFile) bool {
		if err := l.r.fs.links.verify(ctx, s, due); err != nil && len(errs) < most {
			errs = append(errs, err)
		}
		return ctx.Err() == nil
	})
	return errors.Join(errs...)
}
