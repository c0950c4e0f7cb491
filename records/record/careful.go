package record

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// patience is the minimum time for which a failed part of a store is not called.
	patience = time.Second
	// A part that fails only after a long wait is not called for patienceShare times as long as the
	// wait, at most for mostPatience.
	patienceShare, mostPatience = 10, 30 * time.Second
	// If a caller's own deadline passes, this shows that the store hangs only if the caller had at
	// least 1/fairShare of the timeout.
	fairShare = 100
)

// Careful hides the failures of Hints from callers: each call has a timeout. A part that fails is
// not called for a second or, if it hangs, for longer. After that, one caller tries it again, while
// others do without it. Careful logs the failure once, and the recovery once. Its methods may be
// called concurrently.
type Careful struct {
	store   Hints
	options CarefulOptions

	mu     sync.Mutex
	failed map[part]fault // failed parts; guarded by mu
}

// A fault is the state of a part that fails.
type fault struct {
	since time.Time // when the last call failed
	until time.Time // the part is not called until then
	tried bool      // a caller is trying it
}

// CarefulOptions are the options of a Careful. All are required.
type CarefulOptions struct {
	// Timeout limits one call.
	Timeout time.Duration
	Logger  *zap.Logger
	// Subject is the content of the store, in the plural. Without says what happens while the
	// store fails. Both are for the log.
	Subject, Without string
}

// A part is a part of a store that works or fails as a whole.
type part struct{ operation, bucket string }

// NewCareful returns a Careful for s. The caller closes s. If s is nil, only Try may be called.
func NewCareful(s Hints, o CarefulOptions) *Careful {
	return &Careful{store: s, options: o, failed: map[part]fault{}}
}

// Get returns nil if there is no record. It returns false if the store fails.
func (c *Careful) Get(ctx context.Context, k Key) (value []byte, ok bool) {
	ok = c.try(ctx, part{"get", k.Bucket}, func(ctx context.Context) (err error) {
		value, err = c.store.Get(ctx, k)
		if errors.Is(err, ErrNotFound) {
			value, err = nil, nil
		}
		return err
	})
	return value, ok
}

// Put reports whether the store accepted the record. An invalid record does not count as a failure
// of the store.
func (c *Careful) Put(ctx context.Context, k Key, value []byte) bool {
	return c.try(ctx, part{"put", k.Bucket}, func(ctx context.Context) error {
		return c.store.Put(ctx, k, value)
	})
}

// Try is for stores that do not implement Hints. It calls do in the same way as Get and Put call
// the store. The operation and the bucket name the part of the store. It reports whether do was
// called and succeeded.
func (c *Careful) Try(ctx context.Context, operation, bucket string, do func(context.Context) error) bool {
	return c.try(ctx, part{operation, bucket}, do)
}

// try reports whether do was called and succeeded.
func (c *Careful) try(ctx context.Context, p part, do func(context.Context) error) bool {
	if !c.begin(p) {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	began := time.Now()
	err := do(limited)
	took := time.Since(began)
	left := ctx.Err() != nil && (errors.Is(ctx.Err(), context.Canceled) || took < c.options.Timeout/fairShare)
	if err != nil && (left || errors.Is(err, ErrInvalid)) {
		c.giveUp(p)
		return false // this says nothing about the store
	}
	c.note(p, err, began)
	return err == nil
}

// begin reports whether the caller must call p. Then the caller passes the outcome to note or
// giveUp.
func (c *Careful) begin(p part) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, broken := c.failed[p]
	if !broken {
		return true
	}
	if f.tried || time.Now().Before(f.until) {
		return false
	}
	f.tried = true
	c.failed[p] = f
	return true
}

// giveUp lets another caller try p.
func (c *Careful) giveUp(p part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, broken := c.failed[p]; broken {
		f.tried = false
		c.failed[p] = f
	}
}

// note records the outcome of a call to p, and logs a change. A success of a call that began before
// the last failure is no change: a slow part answers some of many concurrent calls in time.
func (c *Careful) note(p part, err error, began time.Time) {
	c.mu.Lock()
	f, broken := c.failed[p]
	now := time.Now()
	if err != nil {
		pause := min(max(patience, patienceShare*now.Sub(began)), mostPatience)
		c.failed[p] = fault{since: now, until: now.Add(pause)}
	} else if broken = broken && !began.Before(f.since); broken {
		delete(c.failed, p)
	}
	c.mu.Unlock()
	fields := []zap.Field{zap.String("operation", p.operation), zap.String("bucket", p.bucket)}
	switch {
	case err != nil && !broken:
		c.options.Logger.Warn("store of "+c.options.Subject+" fails; until it works again, "+
			c.options.Without, append(fields, zap.Error(err))...)
	case err == nil && broken:
		c.options.Logger.Info("store of "+c.options.Subject+" works again", fields...)
	}
}
