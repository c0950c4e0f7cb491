package record

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// patience is how long a part of a store that has failed is not asked again.
const patience = time.Second

// Careful keeps the failures of a Store from whoever waits: each call has a deadline, a part
// that fails is left alone for a second, and its failure is logged once, as is its recovery. Its
// methods may be called concurrently.
type Careful struct {
	store   Store
	options CarefulOptions

	mu     sync.Mutex
	failed map[part]time.Time // when each last failed that does not work
}

// CarefulOptions are all needed.
type CarefulOptions struct {
	// Timeout bounds one call.
	Timeout time.Duration
	Logger  *zap.Logger
	// Subject is what the store keeps, in the plural, and Without what goes on without it, both
	// for the log.
	Subject, Without string
}

// part is what of a store works, or fails, as a whole.
type part struct{ operation, bucket string }

// NewCareful returns a Careful for s, which stays the caller's.
func NewCareful(s Store, o CarefulOptions) *Careful {
	return &Careful{store: s, options: o, failed: map[part]time.Time{}}
}

// Get returns nil if there is no record; it is false if the store cannot tell.
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

// Put reports whether the store took the record.
func (c *Careful) Put(ctx context.Context, k Key, value []byte) bool {
	return c.try(ctx, part{"put", k.Bucket}, func(ctx context.Context) error {
		return c.store.Put(ctx, k, value)
	})
}

// try reports whether do was called and worked.
func (c *Careful) try(ctx context.Context, p part, do func(context.Context) error) bool {
	c.mu.Lock()
	since, broken := c.failed[p]
	c.mu.Unlock()
	if broken && time.Since(since) < patience {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	err := do(limited)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return false // that says nothing about the store; a deadline that has passed does
	}
	c.note(p, err)
	return err == nil
}

// note keeps how p fared and logs it if that is news.
func (c *Careful) note(p part, err error) {
	c.mu.Lock()
	_, broken := c.failed[p]
	if err != nil {
		c.failed[p] = time.Now()
	} else if broken {
		delete(c.failed, p)
	}
	c.mu.Unlock()
	fields := []zap.Field{zap.String("operation", p.operation), zap.String("bucket", p.bucket)}
	switch {
	case err != nil && !broken:
		c.options.Logger.Warn("store of "+c.options.Subject+" fails: "+c.options.Without+
			" without it until it works again", append(fields, zap.Error(err))...)
	case err == nil && broken:
		c.options.Logger.Info("store of "+c.options.Subject+" works again", fields...)
	}
}
