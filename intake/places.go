package intake

import (
	"context"
	"sync"
)

// Places are a number of resources that callers hold for as long as they like, such as streams that
// they read. One caller may have all of them while no other wants any; then the one with the most
// yields, until all have as many as they want or as many as the others. It may be used
// concurrently.
type Places struct {
	most int

	mu     sync.Mutex
	places map[string][]*place // by caller, the oldest first; guarded by mu
	taken  int                 // guarded by mu
}

// A place is a taken one.
type place struct {
	caller string
	yield  func()
}

// NewPlaces returns so many Places.
func NewPlaces(most int) *Places { return &Places{most: most, places: map[string][]*place{}} }

// Take gives a caller a place until leave is called, which may be called again. When the place is
// given to another caller before that, yield is called once, without a lock; it must not wait.
// False: there is no place for him.
func (p *Places) Take(caller string, yield func()) (leave func(), ok bool) {
	mine := &place{caller, yield}
	yields, ok := p.take(mine)
	if yields != nil {
		yields.yield()
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

// take gives a place, and returns the one that must be released for it; nil: none.
func (p *Places) take(mine *place) (yields *place, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most {
		if yields = p.richestLocked(len(p.places[mine.caller]) + 1); yields == nil {
			return nil, false
		}
		p.leaveLocked(yields)
	}
	p.taken++
	p.places[mine.caller] = append(p.places[mine.caller], mine)
	return yields, true
}

// richestLocked returns the youngest place of the caller that has the most, if it still has at
// least as many as n without it.
func (p *Places) richestLocked(n int) (richest *place) {
	for _, own := range p.places {
		if len(own) > n {
			richest, n = own[len(own)-1], len(own)
		}
	}
	return richest
}

func (p *Places) leaveLocked(o *place) {
	own := p.places[o.caller]
	for i, c := range own {
		if c != o {
			continue
		}
		p.taken--
		if own = append(own[:i:i], own[i+1:]...); len(own) == 0 {
			delete(p.places, o.caller)
		} else {
			p.places[o.caller] = own
		}
		return
	}
}

// CallerOf names the caller of a call or of an HTTP request, as far as this package knows: the one
// that it is charged to, or its address. Empty: it came through neither a Server nor an HTTPServer,
// or is charged to no one.
func CallerOf(ctx context.Context) string {
	if in, ok := ctx.Value(receiverKey{}).(*receiver); ok {
		return in.charge.of.of.key
	}
	if c, ok := ctx.Value(connKey{}).(*Conn); ok && c != nil {
		return AddressCaller(c.host)
	}
	return ""
}

// AddressCaller names a Caller that is known only by its address.
func AddressCaller(host string) string { return "address " + host }

// UserCaller names an authenticated Caller.
func UserCaller(user string) string { return "user " + user }
