package prefetch

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// LimitsOptions say how much the races of one worker have under way together.
// Zero values mean the defaults.
type LimitsOptions struct {
	// Calls bounds the calls of Source.Prefetch; default 16.
	Calls int
	// BytesInFlight bounds the sizes of the files that those calls ask for; default
	// 64 MiB. A file counts for a quarter of that at most.
	BytesInFlight int64
	// DirectoryCalls bounds the calls of Source.PrefetchDirectories; default 8.
	DirectoryCalls int
}

func (o LimitsOptions) withDefaults() LimitsOptions {
	if o.Calls <= 0 {
		o.Calls = 16
	}
	if o.BytesInFlight <= 0 {
		o.BytesInFlight = 64 << 20
	}
	if o.DirectoryCalls <= 0 {
		o.DirectoryCalls = 8
	}
	return o
}

// Limits are shared by all races of a worker. Who comes first is served first.
type Limits struct {
	options                   LimitsOptions
	calls, bytes, directories *semaphore.Weighted
}

// NewLimits returns Limits that nobody uses yet.
func NewLimits(o LimitsOptions) *Limits {
	o = o.withDefaults()
	return &Limits{
		options:     o,
		calls:       semaphore.NewWeighted(int64(o.Calls)),
		bytes:       semaphore.NewWeighted(o.BytesInFlight),
		directories: semaphore.NewWeighted(int64(o.DirectoryCalls)),
	}
}

// files waits until a call for files of that size may be made, or ctx ends. The
// caller calls release after the call.
func (l *Limits) files(ctx context.Context, bytes int64) (release func(), err error) {
	bytes = min(bytes, max(l.options.BytesInFlight/4, 1))
	if err := l.calls.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	if err := l.bytes.Acquire(ctx, bytes); err != nil {
		l.calls.Release(1)
		return nil, err
	}
	return func() { l.bytes.Release(bytes); l.calls.Release(1) }, nil
}

// directory is files for a call for directories.
func (l *Limits) directory(ctx context.Context) (release func(), err error) {
	if err := l.directories.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { l.directories.Release(1) }, nil
}
