package records

import (
	"bytes"
	"cmp"
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

// ErrLeaseLost means that another program may have the lease now.
var ErrLeaseLost = errors.New("lease is lost")

// LeaseOptions are the options of a Lease.
type LeaseOptions struct {
	// Holder is the name of the holder in logs; default "somebody".
	Holder string
	// Duration is how long the lease of a dead holder lasts; default DefaultLeaseDuration. All
	// programs must use the same. A holder that cannot renew its lease stops after 4/5 of it.
	Duration time.Duration
	Logger   *zap.Logger // nil logs nothing

	wall func() time.Time // set by tests
}

// A Lease is the right of one program at a time to serve under a name. No clocks are compared: the
// holder changes a record again and again, and a program that wants the lease waits until it has
// seen no change for Duration. So a lease is safe if clocks run at the same speed, within a fifth.
// If a clock does not, or if a store loses data, the terms distinguish the holders.
type Lease struct {
	store   Durable
	key     Key
	options LeaseOptions

	// The record that was last read, and the time since when it has not changed. Only Hold uses
	// them.
	seen  []byte
	since time.Time
	term  uint64 // the highest term seen
	gave  bool   // this program was the last holder, and released the lease

	ours atomic.Pointer[validity] // nil: this program does not hold the lease
	why  atomic.Pointer[error]    // why it did not have it at the last look; nil: it has not looked
}

// A validity is the time until which no other program can have the lease, by two clocks: the
// monotonic clock may stand still while the machine sleeps.
type validity struct{ until, untilWall time.Time }

func (v *validity) valid(wall time.Time) bool {
	return time.Now().Before(v.until) && wall.Before(v.untilWall)
}

// Holds reports whether this program holds the lease and no other program can have it yet. Unlike
// the context of Hold's serve, it is exact when the lease runs out. It may be called at any time.
func (l *Lease) Holds() bool {
	v := l.ours.Load()
	return v != nil && v.valid(l.options.wall())
}

// A tenancy is the content of a lease's record.
type tenancy struct {
	Term   uint64 `json:"term"`
	Holder string `json:"holder"` // empty: the lease is free
	Beat   uint64 `json:"beat"`   // counts the renewals
	Nonce  uint64 `json:"nonce"`  // distinguishes holders of the same name
}

// NewLease returns the lease with a name. The caller closes s. A lease is small and always in use,
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

// Hold waits for the lease, runs serve while it holds the lease, releases it, and returns the
// result of serve. The context of serve ends with ctx, or earlier if the lease is lost, before
// another program can have it. In that case the error wraps both ErrLeaseLost and the error of
// serve. term is higher than the terms of all earlier holders. Hold must not be called again before
// it has returned. In a later call, this program waits behind all other programs.
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
	if l.gave = !lost; l.gave {
		l.lacks(errors.New("it was given up"))
	} else {
		l.lacks(errors.New("it was lost"))
	}
	if lost {
		err = errors.Join(ErrLeaseLost, err)
	}
	return err
}

// A holding is the state of a lease at its holder.
type holding struct {
	now    tenancy
	record []byte // the last known content of the record
	validity
}

// acquire waits until this program has the lease, or ctx ends.
func (l *Lease) acquire(ctx context.Context) (*holding, error) {
	if l.gave { // let waiting programs take it first
		if err := pause.For(ctx, l.options.Duration/3); err != nil {
			return nil, err
		}
	}
	for waits, unread := false, false; ; {
		free, holder, err := l.look(ctx)
		switch {
		case err != nil:
			l.lacks(fmt.Errorf("it cannot be read: %w", err))
			if !unread && ctx.Err() == nil {
				l.options.Logger.Warn("the lease cannot be read; trying again", zap.Error(err))
			}
		case free:
			h, err := l.take(ctx)
			if err == nil {
				return h, nil
			}
			l.lacks(err)
		default:
			l.lacks(fmt.Errorf("%s has it", cmp.Or(holder, "somebody")))
			if holder != "" && !waits {
				waits = true
				l.options.Logger.Info("waiting for the lease", zap.String("holder", holder))
			}
		}
		unread = err != nil
		// The pause is random, so that waiting programs do not all ask at the same time.
		if err := pause.For(ctx, l.options.Duration/8+rand.N(l.options.Duration/8)); err != nil {
			return nil, err
		}
	}
}

func (l *Lease) lacks(why error) { l.why.Store(&why) }

// Lacks returns why this program did not have the lease when it last tried to take it; nil: it has
// it. It may be called at any time.
func (l *Lease) Lacks() error {
	if l.Holds() {
		return nil
	}
	if why := l.why.Load(); why != nil {
		return *why
	}
	return errors.New("it has not been read yet")
}

// look reads the record, and reports whether this program may take the lease.
func (l *Lease) look(ctx context.Context) (free bool, holder string, err error) {
	value, err := l.store.Get(ctx, l.key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, "", err
	}
	now := parseTenancy(value)
	l.term = max(l.term, now.Term)
	if !same(value, l.seen) || l.since.IsZero() {
		l.seen, l.since = value, time.Now()
	}
	// If the record existed before and is now missing, the store has lost it; this does not mean
	// that the holder has ended.
	gone := value == nil && l.term > 0
	if now.Holder == "" && !gone {
		return true, "", nil
	}
	return time.Since(l.since) >= l.options.Duration, now.Holder, nil
}

// take replaces the record that was last seen by one of this program.
func (l *Lease) take(ctx context.Context) (*holding, error) {
	h := &holding{
		now: tenancy{
			// Terms grow even if the store loses the record.
			Term:   max(l.term+1, uint64(l.options.wall().UnixMilli())),
			Holder: l.options.Holder, Nonce: rand.Uint64(),
		},
		record: l.seen,
	}
	if err := l.beat(ctx, h); err != nil {
		return nil, fmt.Errorf("take it: %w", err)
	}
	return h, nil
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
		default: // retry until it succeeds or the lease ends
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

// beat changes the record, which extends the lease to Duration after the start of the change. The
// error wraps ErrLeaseLost if another program has the lease.
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

// reread reads the record after an unexpected answer: an earlier change may have arrived late, or
// may have been lost.
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

// releaseTimeout limits the release of a lease. After that, the lease ends by itself.
const releaseTimeout = time.Second

// release lets other programs have the lease at once. ctx may have ended.
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

// parseTenancy decodes a record. A record that does not decode counts as a free lease.
func parseTenancy(value []byte) (t tenancy) {
	if len(bytes.TrimSpace(value)) == 0 || json.Unmarshal(value, &t) != nil {
		return tenancy{}
	}
	return t
}
