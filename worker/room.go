package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/worker/fault"
)

const (
	// roomInterval is how often the disk is looked at.
	roomInterval = 250 * time.Millisecond
	// A disk is full from where less of it is free than one part in reserveShare, or than mostReserve.
	reserveShare, mostReserve = 64, 256 << 20
	// leastFiles is how many files it has to have room for.
	leastFiles = 1000
)

// room watches the disk that actions write to. While it is full the worker takes no action: all
// of them would fail, and the sooner they fail the more of them it would be given.
type room struct {
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

// newRoom watches the disk of the work folder, which it makes.
func newRoom(o *Options) (*room, error) {
	if err := os.MkdirAll(o.WorkDir, 0o755); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	r := &room{dir: o.WorkDir, log: o.Logger, calls: map[*context.CancelCauseFunc]struct{}{}}
	var own, stores unix.Stat_t
	if err := errors.Join(unix.Stat(o.WorkDir, &own), unix.Stat(o.Store.Dir(), &stores)); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	if own.Dev == stores.Dev {
		r.store = o.Store
	}
	return r, nil
}

// watch looks at the disk again and again until ctx ends.
func (r *room) watch(ctx context.Context) {
	tick := time.NewTicker(roomInterval)
	defer tick.Stop()
	for {
		r.look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look looks at the disk now. If it is full, blobs that nobody uses are given up for it.
func (r *room) look() {
	_, lack, err := r.measure()
	if lack > 0 && r.store != nil && r.store.MakeRoom(lack) > 0 {
		_, lack, err = r.measure()
	}
	for _, end := range r.learn(lack, err) {
		(*end)(errCrowdedOut)
	}
}

// learn takes down what is lacking, and returns what calls are to end with.
func (r *room) learn(lack int64, err error) (ends []*context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		if !r.failed {
			r.failed = true
			r.log.Error("nobody knows whether the disk is full", zap.Error(err))
		}
	case lack > 0 && r.roomy == nil:
		r.spells++
		r.roomy = make(chan struct{})
		r.log.Warn("the disk is full: no action is taken until there is room", zap.String("dir", r.dir),
			zap.Int64("bytes_wanted", lack))
		return slices.Collect(maps.Keys(r.calls))
	case lack == 0 && r.roomy != nil:
		close(r.roomy)
		r.roomy = nil
		r.log.Info("the disk has room again", zap.String("dir", r.dir))
	}
	return nil
}

// calling returns a context for a call for work. When the disk is full it ends, with errCrowdedOut as its cause.
// The caller calls done.
func (r *room) calling(ctx context.Context) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roomy != nil {
		end(errCrowdedOut)
	} else {
		r.calls[&end] = struct{}{}
	}
	return ctx, func() {
		r.mu.Lock()
		delete(r.calls, &end)
		r.mu.Unlock()
		end(nil)
	}
}

// measure is how many bytes may be written, and how many more would have to be free; 0: there is room.
func (r *room) measure() (free, lack int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", r.dir, err)
	}
	free = int64(st.Bavail) * st.Bsize
	reserve := min(int64(st.Blocks)*st.Bsize/reserveShare, mostReserve)
	if st.Files > 0 && st.Ffree < min(st.Files/reserveShare, leastFiles) {
		return free, reserve, nil
	}
	return free, max(0, reserve-free), nil
}

// full returns a channel that is closed when there is room again, nil if there is.
func (r *room) full() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.roomy
}

// A stay is what an action knows of the disk since it was begun.
type stay struct {
	r      *room
	spells int
	free   int64
	full   bool // it was full at the start
}

func (r *room) stay() stay {
	free, _, _ := r.measure() // an error is told by look
	s := stay{r: r, free: free}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.spells, s.full = r.spells, r.roomy != nil
	return s
}

// crowded reports whether the disk was full at any time of the stay.
func (s stay) crowded() bool {
	if s.r == nil {
		return false
	}
	s.r.look()
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.full || s.r.spells > s.spells
}

// errCrowdedOut says that an action failed on a disk that was full, which another worker's is not.
var errCrowdedOut = errors.New("the disk of this worker was full")

// crowdedOut reports whether an action may have failed for lack of room that it has not taken itself: most
// of what was free at its start.
func (a *action) crowdedOut(ctx context.Context, response *repb.ExecuteResponse, err error) bool {
	failed := response.GetResult().GetExitCode() != 0 && a.ran.Cause != runner.OutOfMemory
	if err != nil {
		failed = errors.Is(err, cas.ErrNoSpace) || fault.Status(ctx, err).Code() == codes.Internal
	}
	return failed && a.stay.crowded() && (a.root == nil || a.written() <= a.stay.free/2)
}
