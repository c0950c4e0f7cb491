package vouching

import (
	"context"
	"errors"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
)

// A Vouching is for the blobs that one run of an action used: those of its command are looked at
// while the outputs are stored. All but Used and Read is for the action's goroutine.
type Vouching struct {
	cancel context.CancelFunc // nil until the command has ended
	ended  chan struct{}      // closed when of is vouched for, or err says why not
	of     *disk.Vouching     // what the command used
	err    error              // valid once ended is closed

	mu  sync.Mutex
	now *disk.Vouching // guarded by mu
}

// New begins with nothing used.
func New(of *disk.Verifier) *Vouching { return &Vouching{now: of.Vouch()} }

// Used says that the bytes of d are about to be read. It may be called concurrently.
func (v *Vouching) Used(d digest.Digest) {
	v.mu.Lock()
	now := v.now
	v.mu.Unlock()
	now.Used(d)
}

// Read says that some of the bytes of d have been read already. It may be called concurrently.
func (v *Vouching) Read(d digest.Digest) {
	v.mu.Lock()
	now := v.now
	v.mu.Unlock()
	now.Read(d)
}

// End begins to look at what the command used, which has ended. What is used from then on is
// for Wait.
func (v *Vouching) End(ctx context.Context) {
	ctx, v.cancel = context.WithCancel(ctx)
	v.ended = make(chan struct{})
	v.mu.Lock()
	v.of, v.now = v.now, v.now.Next()
	v.mu.Unlock()
	go func() {
		defer close(v.ended)
		v.err = v.of.Wait(ctx)
	}()
}

// Wait returns nil when all that was used is vouched for.
func (v *Vouching) Wait(ctx context.Context) error {
	err := v.now.Wait(ctx)
	if v.cancel != nil {
		<-v.ended
		err = errors.Join(v.err, err)
	}
	return err
}

// Close ends it. Nothing is used any more.
func (v *Vouching) Close() {
	if v.cancel != nil {
		v.cancel()
		<-v.ended
		v.of.Close()
	}
	v.now.Close()
}
