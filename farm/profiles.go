package farm

import (
	"context"
	"time"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/settings"
)

// openProfiles opens the worker's profiles, nil if there are none.
func (w *Worker) openProfiles() (_ *prefetch.Profiles, closeStore func() error, err error) {
	if !w.Prefetch {
		return nil, func() error { return nil }, nil
	}
	memory, err := w.memoryCache()
	if err != nil {
		return nil, nil, err
	}
	state, err := w.State.Open(w.Data, &w.Client, w.Logger)
	if err != nil {
		return nil, nil, err
	}
	return prefetch.NewProfiles(state.Hints, prefetch.ProfilesOptions{CacheBytes: int(memory / 4), Logger: w.Logger}), state.Close, nil
}

// memoryCache returns the bytes of MemoryCache or the default by the memory.
func (w *Worker) memoryCache() (int64, error) {
	n, err := settings.ParseSize(w.MemoryCache)
	if err != nil {
		return 0, settings.Wrong("tuning.memory_cache: %w", err)
	}
	if n > 0 {
		return n, nil
	}
	return w.Callers.Memory.CacheBytes(serve.DirectoryBytes)
}

// flushTimeout bounds how long the end of a worker waits for its profiles.
const flushTimeout = 2 * time.Second

// flushProfiles saves unwritten profiles, unless abort ends.
func flushProfiles(abort context.Context, p *prefetch.Profiles) {
	if p == nil {
		return
	}
	ctx, cancel := flags.Lastly(abort, flushTimeout)
	defer cancel()
	p.Flush(ctx)
}
