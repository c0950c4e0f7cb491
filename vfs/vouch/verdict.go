package vouch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDamaged is wrapped by errors about a file whose bytes differ from those that were stored.
var ErrDamaged = errors.New("bytes differ from the stored ones")

// A Verdict is the known state of the bytes of a file that several roots share. Its methods may be
// called concurrently; the zero Verdict knows nothing.
type Verdict struct {
	looking sync.Mutex // held while the file is read
	at      atomic.Pointer[time.Time]
	wrong   atomic.Bool // and for good
}

// Right records that the bytes were right at a time.
func (v *Verdict) Right(at time.Time) { v.at.Store(&at) }

// Wrong reports whether the bytes were found to be wrong.
func (v *Verdict) Wrong() bool { return v.wrong.Load() }

// Since reports whether the bytes are known to have been right at that time or later.
func (v *Verdict) Since(t time.Time) bool {
	at := v.at.Load()
	return at != nil && !at.Before(t)
}

// Look calls check, which reads the file, unless the bytes are known to have been right at that
// time or later. The error wraps ErrDamaged if they are wrong; other errors leave that open.
func (v *Verdict) Look(t time.Time, check func() error) error {
	if !v.wrong.Load() && v.Since(t) {
		return nil
	}
	v.looking.Lock()
	defer v.looking.Unlock()
	if v.wrong.Load() {
		return ErrDamaged
	}
	if v.Since(t) {
		return nil
	}
	began := time.Now()
	err := check()
	switch {
	case err == nil:
		v.Right(began)
	case errors.Is(err, ErrDamaged):
		v.wrong.Store(true)
	}
	return err
}

// Damaged turns an error of reading a file into one that wraps ErrDamaged, unless ctx ended the
// read.
func Damaged(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}
