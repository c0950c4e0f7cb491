package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
)

// A vouching is for the blobs that one run of an action used: those of its command are looked at
// while the outputs are stored. All but used is for the action's goroutine.
type vouching struct {
	store  *disk.Store
	cancel context.CancelFunc // nil until the command has ended
	ended  chan struct{}      // closed when of is vouched for, or err says why not
	of     *disk.Vouching     // what the command used
	err    error              // valid once ended is closed

	mu  sync.Mutex
	now *disk.Vouching // guarded by mu
}

func newVouching(s *disk.Store) *vouching { return &vouching{store: s, now: s.Vouch()} }

// used says that the bytes of d are about to be read. It may be called concurrently.
func (v *vouching) used(d digest.Digest) {
	v.mu.Lock()
	now := v.now
	v.mu.Unlock()
	now.Used(d)
}

// end begins to look at what the command used, which has ended. What is used from then on is
// for wait.
func (v *vouching) end(ctx context.Context) {
	ctx, v.cancel = context.WithCancel(ctx)
	v.ended = make(chan struct{})
	v.mu.Lock()
	v.of, v.now = v.now, v.store.Vouch()
	v.mu.Unlock()
	go func() {
		defer close(v.ended)
		v.err = v.of.Wait(ctx)
	}()
}

// wait returns nil when all that was used is vouched for.
func (v *vouching) wait(ctx context.Context) error {
	err := v.now.Wait(ctx)
	if v.cancel != nil {
		<-v.ended
		err = errors.Join(v.err, err)
	}
	return err
}

// close ends it. Nothing is used any more.
func (v *vouching) close() {
	if v.cancel != nil {
		v.cancel()
		<-v.ended
		v.of.Close()
	}
	v.now.Close()
}
