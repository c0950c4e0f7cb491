package diskguard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/disk"
)

const (
	// lookInterval is how often the disk is looked at.
	lookInterval = 250 * time.Millisecond
	// A disk is full from where less of it is free than one part in reserveShare, or than mostReserve.
	reserveShare, mostReserve = 64, 256 << 20
	// leastFiles is how many files it has to have room for.
	leastFiles = 1000
)

// A Guard watches one disk. Its methods may be called concurrently.
type Guard struct {
	dir   string
	store *disk.Store // on the same disk, gives way; nil: it is on another
	log   *zap.Logger

	mu sync.Mutex
	// spells counts how often the disk became full.
	spells int
	// roomy is closed when there is room again; nil: there is.
	roomy chan struct{}
	// calls ends calls for work when the disk becomes full.
	calls map[*context.CancelCauseFunc]struct{}
	// failed: that the disk cannot be looked at has been said.
	failed bool
}

// New watches the disk of the folder dir, which it makes. Of store blobs that nobody uses are given up when it is
// on the same disk.
func New(dir string, store *disk.Store, log *zap.Logger) (*Guard, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	g := &Guard{dir: dir, log: log, calls: map[*context.CancelCauseFunc]struct{}{}}
	var own, stores unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &own), unix.Stat(store.Dir(), &stores)); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	if own.Dev == stores.Dev {
		g.store = store
	}
	return g, nil
}

// Watch looks at the disk again and again until ctx ends.
func (g *Guard) Watch(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		g.look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look looks at the disk now. If it is full, blobs that nobody uses are given up for it, which on a read-only one helps nobody.
func (g *Guard) look() {
	now, err := g.measure()
	if now.lack > 0 && !now.readOnly && g.store != nil && g.store.MakeRoom(now.lack) > 0 {
		now, err = g.measure()
	}
	for _, end := range g.learn(now, err) {
		(*end)(ErrFull)
	}
}

// learn takes down what is lacking, and returns what calls are to end with.
func (g *Guard) learn(now space, err error) (ends []*context.CancelCauseFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err != nil:
		if !g.failed {
			g.failed = true
			g.log.Error("cannot tell whether the disk is full", zap.Error(err))
		}
	case now.lack > 0 && g.roomy == nil:
		g.spells++
		g.roomy = make(chan struct{})
		if now.readOnly {
			g.log.Warn("the disk is read-only: no action is taken until it can be written", zap.String("dir", g.dir))
		} else {
			g.log.Warn("the disk is full: the worker takes no action until there is room", zap.String("dir", g.dir),
				zap.Int64("bytes_wanted", now.lack))
		}
		return slices.Collect(maps.Keys(g.calls))
	case now.lack == 0 && g.roomy != nil:
		close(g.roomy)
		g.roomy = nil
		g.log.Info("the disk has room again", zap.String("dir", g.dir))
	}
	return nil
}

// Calling returns a context for a call for work. When the disk is full it ends, with ErrFull as its cause.
// The caller calls done.
func (g *Guard) Calling(ctx context.Context) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.roomy != nil {
		end(ErrFull)
	} else {
		g.calls[&end] = struct{}{}
	}
	return ctx, func() {
		g.mu.Lock()
		delete(g.calls, &end)
		g.mu.Unlock()
		end(nil)
	}
}

// space is what a disk has room for.
type space struct {
	free, lack int64 // bytes that may be written, and that would have to be free besides; no lack: there is room
	readOnly   bool  // nothing can be written at all, as when the kernel has found a disk damaged
}

func (g *Guard) measure() (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(g.dir, &st); err != nil {
		return space{}, fmt.Errorf("statfs %s: %w", g.dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	reserve := min(int64(st.Blocks)*st.Bsize/reserveShare, mostReserve)
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return space{lack: reserve, readOnly: true}, nil
	case st.Files > 0 && st.Ffree < min(st.Files/reserveShare, leastFiles):
		return space{free: free, lack: reserve}, nil
	}
	return space{free: free, lack: max(0, reserve-free)}, nil
}

// Full returns a channel that is closed when there is room again, nil if there is.
func (g *Guard) Full() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.roomy
}

// A Period is what an action knows of the disk since it was begun. The zero Period knows nothing.
type Period struct {
	g      *Guard
	spells int
	free   int64
	full   bool // it was full at the start
}

// Begin begins a Period.
func (g *Guard) Begin() Period {
	now, _ := g.measure() // an error is told by look
	p := Period{g: g, free: now.free}
	g.mu.Lock()
	defer g.mu.Unlock()
	p.spells, p.full = g.spells, g.roomy != nil
	return p
}

// WasFull reports whether the disk was full at any time since.
func (p Period) WasFull() bool {
	if p.g == nil {
		return false
	}
	p.g.look()
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	return p.full || p.g.spells > p.spells
}

// Free is how many bytes were free at the start.
func (p Period) Free() int64 { return p.free }

// ErrFull says that an action failed on a disk that was full, which another worker's is not.
var ErrFull = errors.New("the disk of this worker was full")
