package vouching

import (
	"context"
	"errors"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
)

// A Vouching verifies the blobs that one run of an action used: those of its command are verified
// while the outputs are stored. All methods except Used and Read are for the action's goroutine.
type Vouching struct {
	cancel context.CancelFunc // nil until the command has ended
	ended  chan struct{}      // closed when of is verified, or err is set
	of     *disk.Vouching     // blobs of the command
	err    error              // valid once ended is closed

	mu  sync.Mutex
	now *disk.Vouching // guarded by mu
}

// New returns a Vouching without used blobs.
func New(of *disk.Verifier) *Vouching { return &Vouching{now: of.Vouch()} }

// Used records that the bytes of d will be read. It may be called concurrently.
func (v *Vouching) Used(d digest.Digest) {
	v.mu.Lock()
	now := v.now
	v.mu.Unlock()
	now.Used(d)
}

// Read records that some of the bytes of d have been read already. It may be called concurrently.
func (v *Vouching) Read(d digest.Digest) {
	v.mu.Lock()
	now := v.now
	v.mu.Unlock()
	now.Read(d)
}

// End starts the verification for a command that has ended. Blobs used from then on are for Wait.
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

// Wait returns nil when all used blobs are verified.
func (v *Vouching) Wait(ctx context.Context) error {
	err := v.now.Wait(ctx)
	if v.cancel != nil {
		<-v.ended
		err = errors.Join(v.err, err)
	}
	return err
}

// Close ends the Vouching. Nothing may use blobs any more.
func (v *Vouching) Close() {
	if v.cancel != nil {
		v.cancel()
		<-v.ended
		v.of.Close()
	}
	v.now.Close()
}
