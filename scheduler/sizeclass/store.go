package sizeclass

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// ErrNotFound says that a Store has no record under a key.
var ErrNotFound = errors.New("no such record")

// The buckets of a Store.
const (
	// StatisticsBucket has buildbarn.iscc.PreviousExecutionStats by reduced action digest.
	StatisticsBucket = "statistics"
	// RunsBucket has forerunner.runs.Record by reduced action digest.
	RunsBucket = "runs"
	// KindsBucket has forerunner.runs.Record by the digest of a forerunner.profiles.CoarseKey.
	KindsBucket = "kinds"
)

// A Key names a record of a Store.
type Key struct {
	Bucket   string
	Instance string // of REv2; may be empty
	Digest   digest.Digest
}

// A Store keeps records of a few kilobytes by their key. Its methods may be called
// concurrently. One that has no bucket of some name may fail for it.
type Store interface {
	// Get returns the value, which is the caller's, or an error that wraps ErrNotFound.
	Get(ctx context.Context, k Key) ([]byte, error)
	// Put sets the value and keeps no reference to it.
	Put(ctx context.Context, k Key, value []byte) error
}

// patience is how long a bucket of a store that has failed is not asked again.
const patience = time.Second

// carefulStore keeps the failures of a Store from whoever waits: each call has a deadline,
// a bucket that fails is left alone for a while, and its failure is logged once.
type carefulStore struct {
	store   Store
	timeout time.Duration
	log     *zap.Logger

	mu     sync.Mutex
	failed map[string]time.Time // when each bucket that does not work last failed
}

// get returns nil if there is no record; it is false if the store cannot tell.
func (s *carefulStore) get(ctx context.Context, k Key) (value []byte, ok bool) {
	ok = s.try(ctx, k.Bucket, func(ctx context.Context) (err error) {
		value, err = s.store.Get(ctx, k)
		if errors.Is(err, ErrNotFound) {
			value, err = nil, nil
		}
		return err
	})
	return value, ok
}

func (s *carefulStore) put(ctx context.Context, k Key, value []byte) {
	s.try(ctx, k.Bucket, func(ctx context.Context) error { return s.store.Put(ctx, k, value) })
}

// try reports whether do was called and worked.
func (s *carefulStore) try(ctx context.Context, bucket string, do func(context.Context) error) bool {
	s.mu.Lock()
	since, broken := s.failed[bucket]
	s.mu.Unlock()
	if broken && time.Since(since) < patience {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := do(limited)
	if err != nil && ctx.Err() != nil {
		return false // that may say nothing about the store
	}
	s.note(bucket, err)
	return err == nil
}

// note keeps how a bucket fared and logs it if that is news.
func (s *carefulStore) note(bucket string, err error) {
	s.mu.Lock()
	_, broken := s.failed[bucket]
	if err != nil {
		s.failed[bucket] = time.Now()
	} else if broken {
		delete(s.failed, bucket)
	}
	s.mu.Unlock()
	switch {
	case err != nil && !broken:
		s.log.Warn("store of statistics fails: size classes are chosen without it until it works again",
			zap.String("bucket", bucket), zap.Error(err))
	case err == nil && broken:
		s.log.Info("store of statistics works again", zap.String("bucket", bucket))
	}
}
