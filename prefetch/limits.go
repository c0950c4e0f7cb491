package prefetch

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// LimitsOptions limit the requests of all races of one worker together. Zero values mean the
// defaults.
type LimitsOptions struct {
	// Calls limits the concurrent calls of Source.Prefetch; default 16.
	Calls int
	// BytesInFlight limits the total size of files above 1 MiB in these calls; default 64 MiB. A
	// file counts for at most a quarter of that.
	BytesInFlight int64
	// DirectoryCalls limits the concurrent calls of Source.PrefetchDirectories; default 8.
	DirectoryCalls int
	// NoMentions: no race reads contents to find which files they mention.
	NoMentions bool
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

// Limits are shared by all races of a worker, first come, first served.
type Limits struct {
	options                   LimitsOptions
	calls, bytes, directories *semaphore.Weighted
	pace                      pace
	scans                     *follow.Scans
	trees                     trees
}

// When the last maxLate trees brought nothing in time, of further ones only one in treeRetry is
// requested.
const (
	maxLate   = 2 * maxTrees
	treeRetry = 16
)

// trees is whether whole trees are worth a call. One that hangs keeps a walk, and a call for
// directories, until its time is over.
type trees struct {
	unsupported   atomic.Bool  // storage cannot send them
	late, skipped atomic.Int64 // the last ones that brought nothing in time; those that came up since
}

// worth reports whether to request some.
func (t *trees) worth() bool {
	return !t.unsupported.Load() && (t.late.Load() < maxLate || t.skipped.Add(1)%treeRetry == 0)
}

// ended notes the end of a call for one.
func (t *trees) ended(isLate bool) {
	if isLate {
		t.late.Add(1)
	} else {
		t.late.Store(0)
	}
}

// NewLimits returns unused Limits.
func NewLimits(o LimitsOptions) *Limits {
	o = o.withDefaults()
	return &Limits{
		options:     o,
		calls:       semaphore.NewWeighted(int64(o.Calls)),
		bytes:       semaphore.NewWeighted(o.BytesInFlight),
		directories: semaphore.NewWeighted(int64(o.DirectoryCalls)),
		scans:       follow.NewScans(),
	}
}

// call waits until a call may be made, or ctx ends. The caller calls ended after the call,
// endedLarge if it was for a large file.
func (l *Limits) call(ctx context.Context) error { return l.calls.Acquire(ctx, 1) }

func (l *Limits) ended() { l.calls.Release(1) }

// counted returns for how much a large file counts.
func (l *Limits) counted(bytes int64) int64 { return min(bytes, max(l.options.BytesInFlight/4, 1)) }

// tryReserve reserves bytes for the call of a large file, and reports whether it did.
func (l *Limits) tryReserve(bytes int64) bool { return l.bytes.TryAcquire(l.counted(bytes)) }

// reserve waits until there are bytes for a large file, and then a call, or ctx ends.
func (l *Limits) reserve(ctx context.Context, bytes int64) error {
	bytes = l.counted(bytes)
	if err := l.bytes.Acquire(ctx, bytes); err != nil {
		return err
	}
	err := l.call(ctx)
	if err != nil {
		l.bytes.Release(bytes)
	}
	return err
}

func (l *Limits) endedLarge(bytes int64) {
	l.bytes.Release(l.counted(bytes))
	l.ended()
}

// directory waits until a call for directories may be made, or ctx ends. The caller calls release
// after the call.
func (l *Limits) directory(ctx context.Context) (release func(), err error) {
	if err := l.directories.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { l.directories.Release(1) }, nil
}
