package vfs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDamaged is wrapped by the errors of Root.Vouch, and where a blob that is to be copied is
// not what its digest says.
var ErrDamaged = errors.New("bytes are not what was stored")

// defaultVerifyEvery is Options.VerifyEvery if that is zero.
const defaultVerifyEvery = 24 * time.Hour

// A verdict is what is known of the bytes of a file that this package keeps for several roots.
type verdict struct {
	looking sync.Mutex // held while the file is read
	at      atomic.Pointer[time.Time]
	wrong   atomic.Bool // and for good
}

// right notes that the bytes were right at a time.
func (v *verdict) right(at time.Time) { v.at.Store(&at) }

// since reports whether the bytes are known to have been right at that time or later.
func (v *verdict) since(t time.Time) bool {
	at := v.at.Load()
	return at != nil && !at.Before(t)
}

// look has check read the file, unless it is known to have been right at that time or later.
// The error wraps ErrDamaged if it is wrong; others say nothing of it.
func (v *verdict) look(t time.Time, check func() error) error {
	if !v.wrong.Load() && v.since(t) {
		return nil
	}
	v.looking.Lock()
	defer v.looking.Unlock()
	if v.wrong.Load() {
		return ErrDamaged
	}
	if v.since(t) {
		return nil
	}
	began := time.Now()
	err := check()
	switch {
	case err == nil:
		v.right(began)
	case errors.Is(err, ErrDamaged):
		v.wrong.Store(true)
	}
	return err
}

// damagedUnless makes of an error of reading a file that it is damaged, unless ctx ended it.
func damagedUnless(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

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
		if !g.image.said.since(due) {
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
		stale = !s.said.since(due)
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
