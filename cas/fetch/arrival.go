package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// An arrival is a large blob that is arriving in the store: a file with holes that streams fill,
// and the readers that wait for parts. fetch, of which there is one, starts the streams, hashes the
// bytes up to the first hole, and ends when all are hashed. No byte is written twice: a stream ends
// where another one was.
type arrival struct {
	in       cas.Incoming
	upstream cas.RangeFetcher
	behind   cas.RangeFetcher // for streams without waiting readers; may be nil
	hints    chan struct{}    // has a place for each stream of the Group that fetches predicted parts
	digest   digest.Digest
	stop     func() stop // until when what no caller waits for stands still; nil: it never does

	mu        sync.Mutex
	have      span.Set      // guarded by mu; the parts that in has
	streams   []*stream     // guarded by mu; at most maxStreams+2, and maxHints for predicted parts
	wants     []*span.Span  // guarded by mu; parts that readers wait for, the longest wait first
	foreseen  foreseen      // guarded by mu; parts that readers are predicted to want
	whole     bool          // guarded by mu; fetch all of it, not only the predicted parts
	needed    bool          // guarded by mu; a caller waits for all of it
	unlimited bool          // guarded by mu; a part could not be fetched alone: streams go to the end
	serial    int           // guarded by mu; of the newest stream
	changed   chan struct{} // guarded by mu; closed at the next change; nil if no goroutine waits
	err       error         // guarded by mu; why it failed, for good
}

// newArrival returns one of d, for which ranged is not nil. It fetches nothing before a profile
// predicts parts, or complete is called.
func (t *ReadThrough) newArrival(d digest.Digest) *arrival {
	behind, _ := t.behind.(cas.RangeFetcher)
	return &arrival{in: t.store.Receive(d), upstream: t.ranged(d), behind: behind, hints: t.hints, digest: d}
}

// fetch fills the file and returns when it is the blob, or cannot become it. The
// streams have ended then.
func (a *arrival) fetch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	hasher := digest.NewHasher(a.digest.Function())
	for hasher.SizeBytes() < a.digest.SizeBytes() {
		p, err := a.plan(hasher.SizeBytes(), a.stopped())
		if err != nil {
			return err
		}
		for _, s := range p.start {
			running.Go(func() { s.ended(s.call(ctx)) })
		}
		if p.whole > hasher.SizeBytes() {
			if err := a.hash(hasher, p); err != nil {
				return err
			}
			continue
		}
		if p.wait(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if got := hasher.Digest(); got != a.digest {
		return fmt.Errorf("%w: it is %s", cas.ErrCorrupt, got)
	}
	return nil
}

// stopped returns until when what no caller waits for stands still.
func (a *arrival) stopped() stop {
	if a.stop == nil {
		return stop{}
	}
	return a.stop()
}

// buffers are of *[]byte.
var buffers = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}

// hashAtOnce limits the bytes that are hashed before readers are served again.
const hashAtOnce = 1 << 20

// hash hashes the next bytes up to p.whole.
func (a *arrival) hash(hasher *digest.Hasher, p plan) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	n := min(p.whole-hasher.SizeBytes(), hashAtOnce)
	_, err := io.CopyBuffer(hasher, io.NewSectionReader(a.in, hasher.SizeBytes(), n), *buffer)
	return err
}

// complete fetches the whole blob, beyond the predicted parts. If a caller waits for it, it goes
// before other calls and before predicted parts.
func (a *arrival) complete(waits bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.whole && (a.needed || !waits) {
		return
	}
	a.whole, a.needed = true, a.needed || waits
	a.changeLocked()
}

// keep makes the file, which fetch has filled, the store's, and pins it.
func (a *arrival) keep(ctx context.Context) error {
	return a.in.Keep(ctx)
}

// drop removes the file. Readers fail with err from now on.
func (a *arrival) drop(err error) {
	a.mu.Lock()
	a.err = err
	a.changeLocked()
	a.mu.Unlock()
	a.in.Drop()
}

// close ends the use of the file, which is dropped or kept. A nil a has none.
func (a *arrival) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	if a.err == nil {
		a.err = fs.ErrClosed
	}
	a.mu.Unlock()
	a.in.Close()
}

// changeLocked wakes all goroutines that wait for a change.
func (a *arrival) changeLocked() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

func (a *arrival) changedLocked() <-chan struct{} {
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

// readAt implements io.ReaderAt. It waits until the bytes have arrived.
func (a *arrival) readAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	n := min(int64(len(p)), max(0, a.digest.SizeBytes()-off))
	var err error
	if n < int64(len(p)) {
		err = io.EOF
	}
	if n == 0 {
		return 0, err
	}
	if err := a.await(ctx, span.Span{From: off, To: off + n}); err != nil {
		return 0, err
	}
	got, readErr := a.in.ReadAt(p[:n], off)
	if readErr == nil {
		readErr = err
	} else if failed := a.failure(); failed != nil {
		readErr = failed // the file was closed under us
	}
	return got, readErr
}

func (a *arrival) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// await returns once w has come, at once if it has, even when ctx has ended.
func (a *arrival) await(ctx context.Context, w span.Span) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	waits := false
	for a.err == nil && a.have.End(w.From) < w.To {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !waits {
			waits = true
			a.readLocked(w)
			a.wants = append(a.wants, &w)
			a.changeLocked() // for fetch, which plans
			defer func() { a.unwantLocked(&w) }()
		}
		changed := a.changedLocked()
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
	if !waits {
		a.readLocked(w)
	}
	return a.err
}

func (a *arrival) unwantLocked(w *span.Span) {
	for i := range a.wants {
		if a.wants[i] == w {
			a.wants = append(a.wants[:i], a.wants[i+1:]...)
			return
		}
	}
}
