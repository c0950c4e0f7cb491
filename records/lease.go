package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/proto/names"
)

// DefaultLeaseDuration is the default of LeaseOptions.Duration.
const DefaultLeaseDuration = 10 * time.Second

// ErrLeaseLost: another program may have the lease now.
var ErrLeaseLost = errors.New("lease is lost")

// LeaseOptions are the options of a Lease.
type LeaseOptions struct {
	// Holder names the holder, in logs; default "somebody".
	Holder string
	// Duration is how long the lease of a dead holder lasts; default DefaultLeaseDuration. It must
	// be the same for all holders. A holder that cannot renew its lease ends after 4/5 of it.
	Duration time.Duration
	Logger   *zap.Logger // nil logs nothing

	wall func() time.Time // of a test
}

// A Lease is the right, of one program at a time, to serve under a name. No clocks are compared:
// the holder changes a record again and again, and a program that wants the lease waits until it
// has seen no change for Duration. So a lease is safe if clocks run at the same speed, within a
// fifth; if one does not, or if a store loses data, terms distinguish the holders.
type Lease struct {
	store   Durable
	key     Key
	options LeaseOptions

	// The record that was read last, and since when it has been the same. They are Hold's.
	seen  []byte
	since time.Time
	term  uint64 // the highest that was ever seen
	gave  bool   // it was ours last, and we gave it up

	ours atomic.Pointer[validity] // nil: it is not
}

// A validity is until when a lease may be somebody else's, by either clock: one may stand still
// while the machine sleeps.
type validity struct{ until, untilWall time.Time }

func (v *validity) valid(wall time.Time) bool {
	return time.Now().Before(v.until) && wall.Before(v.untilWall)
}

// Holds reports whether the lease is ours, and nobody else can have it yet. Unlike the context of
// Hold's serve, it is exact while the lease runs out. It may be called at any time.
func (l *Lease) Holds() bool {
	v := l.ours.Load()
	return v != nil && v.valid(l.options.wall())
}

// A tenancy is the content of the record of a lease.
type tenancy struct {
	Term   uint64 `json:"term"`
	Holder string `json:"holder"` // empty: it is free
	Beat   uint64 `json:"beat"`   // counts the renewals
	Nonce  uint64 `json:"nonce"`  // tells holders of one name apart
}

// NewLease returns the lease with a name; the caller closes s. A lease is small and always in use,
// so s does not evict it.
func NewLease(s Durable, name string, o LeaseOptions) *Lease {
	if o.Duration <= 0 {
		o.Duration = DefaultLeaseDuration
	}
	if o.Holder == "" {
		o.Holder = "somebody"
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.wall == nil {
		o.wall = func() time.Time { return time.Now().Round(0) }
	}
	return &Lease{store: s, key: Key{Bucket: names.LeaseBucket, Digest: digest.Of(digest.SHA256, []byte(name))}, options: o}
}

// Hold waits for the lease, runs serve while it holds it, gives it up, and returns the result of
// serve. The context of serve ends with ctx, and before another program can have the lease: then
// the error wraps ErrLeaseLost, besides that of serve. term is higher than those of all earlier
// holders. Hold must not be called again before it has returned; a later call waits behind all
// other programs.
func (l *Lease) Hold(ctx context.Context, serve func(ctx context.Context, term uint64) error) error {
	held, err := l.acquire(ctx)
	if err != nil {
		return err
	}
	term := held.now.Term
	l.options.Logger.Info("lease taken", zap.Uint64("term", term))
	serving, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan struct{})
	go func() {
		defer close(served)
		err = serve(serving, term)
	}()
	lost := l.renew(ctx, held, served)
	if lost {
		l.ours.Store(nil)
	}
	stop()
	if lost {
		l.options.Logger.Warn("lease lost", zap.Uint64("term", term))
	}
	<-served
	l.ours.Store(nil)
	l.release(ctx, held)
	l.gave = !lost
	if lost {
		err = errors.Join(ErrLeaseLost, err)
	}
	return err
}

// A holding is what a holder knows of its lease.
type holding struct {
	now    tenancy
	record []byte // what the record was last known to be
	validity
}

// acquire waits until the lease is ours, or ctx ends.
func (l *Lease) acquire(ctx context.Context) (*holding, error) {
	if l.gave { // whoever waits looks meanwhile
		if err := pause.For(ctx, l.options.Duration/3); err != nil {
			return nil, err
		}
	}
	for waits := false; ; {
		free, holder := l.look(ctx)
		if free {
			if h := l.take(ctx); h != nil {
				return h, nil
			}
		} else if holder != "" && !waits {
			waits = true
			l.options.Logger.Info("waiting for the lease", zap.String("holder", holder))
		}
		// Not all who wait ask at the same moment.
		if err := pause.For(ctx, l.options.Duration/8+rand.N(l.options.Duration/8)); err != nil {
			return nil, err
		}
	}
}

// look reads the record, and reports whether it may be taken.
func (l *Lease) look(ctx context.Context) (free bool, holder string) {
	value, err := l.store.Get(ctx, l.key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		l.options.Logger.Debug("the lease cannot be read", zap.Error(err))
		return false, ""
	}
	now := parseTenancy(value)
	l.term = max(l.term, now.Term)
	if !same(value, l.seen) || l.since.IsZero() {
		l.seen, l.since = value, time.Now()
	}
	// A record that is gone, but was there, tells of a store that forgets, not of a holder that
	// ended.
	gone := value == nil && l.term > 0
	if now.Holder == "" && !gone {
		return true, ""
	}
	return time.Since(l.since) >= l.options.Duration, now.Holder
}

// take makes the record that was seen last ours, nil if that fails.
func (l *Lease) take(ctx context.Context) *holding {
	h := &holding{
		now: tenancy{
			// Terms grow even if the store forgets them.
			Term:   max(l.term+1, uint64(l.options.wall().UnixMilli())),
			Holder: l.options.Holder, Nonce: rand.Uint64(),
		},
		record: l.seen,
	}
	if l.beat(ctx, h) != nil {
		return nil
	}
	return h
}

// renew keeps the lease until serve has returned, ctx has ended or the lease is lost.
func (l *Lease) renew(ctx context.Context, h *holding, served <-chan struct{}) (lost bool) {
	tick := time.NewTicker(l.options.Duration / 10)
	defer tick.Stop()
	next := time.Now().Add(l.options.Duration / 5)
	for {
		expires := time.NewTimer(time.Until(h.until))
		select {
		case <-served:
		case <-ctx.Done():
		case <-expires.C:
		case <-tick.C:
		}
		expires.Stop()
		if isClosed(served) || ctx.Err() != nil {
			return false
		}
		if !h.valid(l.options.wall()) {
			return true
		}
		if time.Now().Before(next) {
			continue
		}
		limited, cancel := context.WithDeadline(ctx, h.until)
		err := l.beat(limited, h)
		cancel()
		switch {
		case err == nil:
			next = time.Now().Add(l.options.Duration / 5)
		case errors.Is(err, ErrLeaseLost):
			return true
		default: // until it works, or time is up
			l.options.Logger.Warn("the lease cannot be renewed", zap.Time("ends", h.untilWall), zap.Error(err))
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// beat changes the record, which makes the lease ours for another Duration from before the
// change on. The error wraps ErrLeaseLost if it is somebody else's.
func (l *Lease) beat(ctx context.Context, h *holding) error {
	next := h.now
	next.Beat++
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	start, wall := time.Now(), l.options.wall()
	err = l.store.CompareAndSwap(ctx, l.key, h.record, value)
	if errors.Is(err, ErrConflict) {
		if err = l.reread(ctx, h, &next); err != nil {
			return err
		}
		value, _ = json.Marshal(next)
		start, wall = time.Now(), l.options.wall()
		err = l.store.CompareAndSwap(ctx, l.key, h.record, value)
	}
	if err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	h.now, h.record = next, value
	own := l.options.Duration * 4 / 5
	h.validity = validity{start.Add(own), wall.Add(own)}
	l.ours.Store(&validity{h.until, h.untilWall})
	return nil
}

// reread finds out what the record is if it is not what was expected: an earlier change may have
// come through late, or have been forgotten.
func (l *Lease) reread(ctx context.Context, h *holding, next *tenancy) error {
	value, err := l.store.Get(ctx, l.key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read lease: %w", err)
	}
	now := parseTenancy(value)
	if value != nil && (now.Term != h.now.Term || now.Nonce != h.now.Nonce) {
		return fmt.Errorf("%w: %s has term %d", ErrLeaseLost, now.Holder, now.Term)
	}
	h.record = value
	next.Beat = max(next.Beat, now.Beat+1)
	return nil
}

// releaseTimeout bounds how long giving a lease up may take; it then ends by itself.
const releaseTimeout = time.Second

// release lets others have the lease at once; ctx may have ended.
func (l *Lease) release(ctx context.Context, h *holding) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	value, err := json.Marshal(tenancy{Term: h.now.Term})
	if err == nil {
		err = l.store.CompareAndSwap(ctx, l.key, h.record, value)
	}
	if err != nil && !errors.Is(err, ErrConflict) {
		l.options.Logger.Info("cannot give up the lease; it ends by itself", zap.Error(err))
	}
}

// parseTenancy returns what a record says; one that is none is nobody's.
func parseTenancy(value []byte) (t tenancy) {
	if len(bytes.TrimSpace(value)) == 0 || json.Unmarshal(value, &t) != nil {
		return tenancy{}
	}
	return t
}
