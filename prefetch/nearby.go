package prefetch

import (
	"context"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// maxOpened bounds the reads that wait to be looked at.
const maxOpened = 4096

// nearby is where a Race without a profile hears of reads, and of calls that have
// ended. One goroutine listens.
type nearby struct {
	wake chan struct{} // one place

	mu     sync.Mutex
	opened []string // guarded by mu; files, to be looked at
	calls  []call   // guarded by mu; to be looked at
	off    bool     // guarded by mu; nobody listens any more
}

// A call is one that has ended, for files of a batch.
type call struct {
	batch   []file
	brought []digest.Digest
}

func newNearby() *nearby { return &nearby{wake: make(chan struct{}, 1)} }

// Opened says that the action is about to read path, or has just done so, for the
// first time. It does not wait, and is made to be called from OnFirstRead of vfs.
// Without a Profile, what is next to it is fetched ahead: see the comment of the
// package. With a Profile it does nothing.
func (r *Race) Opened(path string, k tree.Kind) {
	if n := r.nearby; n != nil && k == tree.File {
		n.note(func() {
			if len(n.opened) < maxOpened {
				n.opened = append(n.opened, path)
			}
		})
	}
}

// ended says what came of a batch.
func (n *nearby) ended(batch []file, brought []digest.Digest) {
	n.note(func() { n.calls = append(n.calls, call{batch, brought}) })
}

// note calls add, which adds something to be looked at.
func (n *nearby) note(add func()) {
	n.mu.Lock()
	if !n.off {
		add()
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *nearby) take() (opened []string, calls []call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	opened, calls = n.opened, n.calls
	n.opened, n.calls = nil, nil
	return opened, calls
}

func (n *nearby) giveUp() {
	n.mu.Lock()
	n.off, n.opened, n.calls = true, nil, nil
	n.mu.Unlock()
}

// readAhead looks at what was opened, until ctx ends or it is given up.
func (r *Race) readAhead(ctx context.Context) {
	reach := newReach(r.source)
	for {
		select {
		case <-r.nearby.wake:
		case <-ctx.Done():
			return
		}
		opened, calls := r.nearby.take()
		for _, path := range opened {
			reach.opened(r.root, path)
		}
		for _, c := range calls {
			reach.ended(c)
		}
		if reach.futile() {
			r.nearby.giveUp()
			r.mu.Lock()
			r.stats.NearbyOff = true
			r.mu.Unlock()
			r.queue.drop()
			return
		}
		r.add(reach.take())
	}
}
