package farm

import (
	"context"
	"errors"

	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// sizeStore lets statistics of runs be kept in a kv.Store.
type sizeStore struct{ store kv.Store }

// Get implements sizeclass.Store.
func (s sizeStore) Get(ctx context.Context, k sizeclass.Key) ([]byte, error) {
	value, err := s.store.Get(ctx, kv.Key(k))
	if errors.Is(err, kv.ErrNotFound) {
		return nil, sizeclass.ErrNotFound
	}
	return value, err
}

// Put implements sizeclass.Store.
func (s sizeStore) Put(ctx context.Context, k sizeclass.Key, value []byte) error {
	return s.store.Put(ctx, kv.Key(k), value)
}

// openSizes returns what chooses size classes by the records, nil if nothing does.
func (s *Scheduler) openSizes(records kv.Store) (*sizeclass.Analyzer, error) {
	if !s.LearnSizes {
		return nil, nil
	}
	return sizeclass.NewAnalyzer(sizeStore{records}, sizeclass.Options{Logger: s.Logger})
}
