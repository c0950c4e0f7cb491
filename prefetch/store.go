package prefetch

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// ErrNotFound says that a Store has no record under a key.
var ErrNotFound = errors.New("no such record")

// A Store keeps records of a few hundred kilobytes at most by their key. Its methods
// may be called concurrently. Each value is an encoded forerunner.profiles.Record,
// and thereby a buildbarn.fsac.FileSystemAccessProfile with one field that this message
// does not have; a store that drops that field makes profiles forget how old each
// path in them is. A store that has no bucket of some name may fail for it.
type Store interface {
	// Get returns the value, which is the caller's, or an error that wraps ErrNotFound.
	Get(ctx context.Context, k Key) ([]byte, error)
	// Put sets the value and keeps no reference to it.
	Put(ctx context.Context, k Key, value []byte) error
}

// patience is how long a part of a store that has failed is not asked again.
const patience = time.Second

// carefulStore keeps the failures of a Store from whoever waits: each call has a deadline,
// a part that fails is left alone for a while, and its failure is logged once.
type carefulStore struct {
	store   Store
	timeout time.Duration
	log     *zap.Logger

	mu     sync.Mutex
	failed map[part]time.Time // when each last failed that does not work
}

// part is what of a store works, or fails, as a whole.
type part struct{ operation, bucket string }

// get returns nil if there is no record; it is false if the store cannot tell.
func (s *carefulStore) get(ctx context.Context, k Key) (value []byte, ok bool) {
	ok = s.try(ctx, part{"get", k.Bucket}, func(ctx context.Context) (err error) {
		value, err = s.store.Get(ctx, k)
		if errors.Is(err, ErrNotFound) {
			value, err = nil, nil
		}
		return err
	})
	return value, ok
}

func (s *carefulStore) put(ctx context.Context, k Key, value []byte) bool {
	return s.try(ctx, part{"put", k.Bucket}, func(ctx context.Context) error {
		return s.store.Put(ctx, k, value)
	})
}

// try reports whether do was called and worked.
func (s *carefulStore) try(ctx context.Context, p part, do func(context.Context) error) bool {
	s.mu.Lock()
	since, broken := s.failed[p]
	s.mu.Unlock()
	if broken && time.Since(since) < patience {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := do(limited)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return false // that says nothing about the store; a deadline that has passed does
	}
	s.note(p, err)
	return err == nil
}

// note keeps how p fared and logs it if that is news.
func (s *carefulStore) note(p part, err error) {
	s.mu.Lock()
	_, broken := s.failed[p]
	if err != nil {
		s.failed[p] = time.Now()
	} else if broken {
		delete(s.failed, p)
	}
	s.mu.Unlock()
	fields := []zap.Field{zap.String("operation", p.operation), zap.String("bucket", p.bucket)}
	switch {
	case err != nil && !broken:
		s.log.Warn("store of profiles fails: actions do without it until it works again",
			append(fields, zap.Error(err))...)
	case err == nil && broken:
		s.log.Info("store of profiles works again", fields...)
	}
}
