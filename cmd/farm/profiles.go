package farm

import (
	"context"
	"errors"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/prefetch"
)

// recordsFile is where a worker keeps its records, in its data folder.
const recordsFile = "records.db"

// profileStore lets profiles be kept in a kv.Store.
type profileStore struct{ store kv.Store }

// Get implements prefetch.Store.
func (s profileStore) Get(ctx context.Context, k prefetch.Key) ([]byte, error) {
	value, err := s.store.Get(ctx, kv.Key(k))
	if errors.Is(err, kv.ErrNotFound) {
		return nil, prefetch.ErrNotFound
	}
	return value, err
}

// Put implements prefetch.Store.
func (s profileStore) Put(ctx context.Context, k prefetch.Key, value []byte) error {
	return s.store.Put(ctx, kv.Key(k), value)
}

// openProfiles opens what the worker remembers of what actions read. Where it
// cannot be opened, which is logged, it is remembered until the worker ends.
func (w *Worker) openProfiles() (_ *prefetch.Profiles, closeStore func() error) {
	closeStore = func() error { return nil }
	if !w.Prefetch {
		return nil, closeStore
	}
	var store kv.Store
	file, err := kv.OpenBolt(filepath.Join(w.Data, recordsFile), kv.BoltOptions{Logger: w.Logger})
	if err != nil {
		w.Logger.Warn("what actions read is not remembered beyond the end of this worker", zap.Error(err))
		store = kv.NewMemory(0)
	} else {
		store, closeStore = file, file.Close
	}
	return prefetch.NewProfiles(profileStore{store}, prefetch.ProfilesOptions{Logger: w.Logger}), closeStore
}
