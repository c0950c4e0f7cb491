package intake

import (
	"context"
	"slices"
	"sync"
)

// Permits are units of a resource that callers hold for as long as they like, such as streams that
// they read. One caller may have all of them while no other wants any. Then the caller with the
// most yields, until all have as many as they want or as many as the others. Permits may be used
// concurrently.
type Permits struct {
	most int

	mu      sync.Mutex
	permits map[string]*holder // by caller; guarded by mu
	taken   int                // guarded by mu
}

// A holder is a caller who has permits.
type holder struct {
	own   []*permit // the oldest first
	units int       // all together
}

// A permit is a taken one, of one unit or more.
type permit struct {
	caller string
	units  int
	yield  func()
}

// NewPermits returns Permits of so many units.
func NewPermits(most int) *Permits { return &Permits{most: most, permits: map[string]*holder{}} }

// Take gives a caller a permit of one unit until leave is called, which may be called again. If
// another caller gets the permit before that, yield is called once, without a lock; it must not
// wait. False: there is no permit for the caller.
func (p *Permits) Take(caller string, yield func()) (leave func(), ok bool) {
	return p.TakeUnits(caller, 1, yield)
}

// TakeUnits is Take for a permit of so many units. Several others may yield for it, or none.
func (p *Permits) TakeUnits(caller string, units int, yield func()) (leave func(), ok bool) {
	mine := &permit{caller, units, yield}
	yielding, ok := p.take(mine)
	for _, o := range yielding {
		o.yield()
	}
	if !ok {
		return nil, false
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leaveLocked(mine)
	}, true
}

// take gives a permit, and returns those that must be released for it.
func (p *Permits) take(mine *permit) (yielding []*permit, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mineAfter := mine.units
	if h := p.permits[mine.caller]; h != nil {
		mineAfter += h.units
	}
	for p.taken+mine.units > p.most {
		o := p.richestLocked(mineAfter)
		if o == nil {
			for i := len(yielding) - 1; i >= 0; i-- { // as they were: it is of no use
				p.addLocked(yielding[i])
			}
			return nil, false
		}
		p.leaveLocked(o)
		yielding = append(yielding, o)
	}
	p.addLocked(mine)
	return yielding, true
}

// richestLocked returns the youngest permit of the caller that has the most units, if these are more
// than so many.
func (p *Permits) richestLocked(units int) (richest *permit) {
	for _, h := range p.permits {
		if h.units > units {
			richest, units = h.own[len(h.own)-1], h.units
		}
	}
	return richest
}

func (p *Permits) addLocked(o *permit) {
	h := p.permits[o.caller]
	if h == nil {
		h = &holder{}
		p.permits[o.caller] = h
	}
	h.own = append(h.own, o)
	h.units += o.units
	p.taken += o.units
}

func (p *Permits) leaveLocked(o *permit) {
	h := p.permits[o.caller]
	if h == nil {
		return
	}
	i := slices.Index(h.own, o)
	if i < 0 {
		return
	}
	h.own = slices.Delete(h.own, i, i+1)
	h.units -= o.units
	p.taken -= o.units
	if len(h.own) == 0 {
		delete(p.permits, o.caller)
	}
}

// CallerOf names the caller of a call or of an HTTP request, as far as this package knows: the one
// that it is charged to, or its address. It is empty if the call came through neither a Server nor
// an HTTPServer, or is charged to nobody.
func CallerOf(ctx context.Context) string {
	if in := receiverOf(ctx); in != nil {
		return in.charge.of.of.key
	}
	if c, ok := ctx.Value(connKey{}).(*Conn); ok && c != nil {
		return c.Caller()
	}
	return ""
}

// AddressCaller names a Caller that is known only by its address.
func AddressCaller(host string) string { return "address " + host }

// UserCaller names an authenticated Caller.
func UserCaller(user string) string { return "user " + user }
