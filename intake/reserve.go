package intake

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// pressEvery is how often a waiting call looks for one that can yield.
	pressEvery = time.Second
	// searchEvery is how often a caller's calls are gone through, as long as none makes room.
	searchEvery = 100 * time.Millisecond
)

var errYielded = status.Error(codes.ResourceExhausted, "this call was ended to make room for other connections, which have less: "+
	"try again later; an upload resumes where it ended")

// A waiter is a call that waits for n of a kind.
type waiter struct {
	call  *charge
	n     int64
	ready chan struct{} // closed once the call has it, under the ledger's mu
}

// A share is what one call has of a kind and another one will get, once the first has ended.
type share struct {
	from *charge
	kind kind
	n    int64
}

// reserve waits until a call has n of a kind. A call asks for kinds in the order of bytesOfCalls,
// and for none of which it has some.
func (l *ledger) reserve(ctx context.Context, c *charge, k kind, n int64) error {
	w, taken, err := l.ask(c, k, n)
	if err != nil {
		return err
	}
	if w == nil {
		return l.inherit(ctx, c, taken)
	}
	charged(ctx) // as a waiting one
	l.end(taken)
	limited, cancel := context.WithTimeout(ctx, l.bounds.Wait)
	defer cancel()
	ticker := time.NewTicker(pressEvery)
	defer ticker.Stop()
	for limited.Err() == nil {
		select {
		case <-w.ready:
			return nil
		case <-ticker.C:
			if taken := l.press(w, k); len(taken) > 0 {
				return l.inherit(ctx, c, taken)
			}
		case <-limited.Done():
		}
	}
	switch granted, condemned := l.withdraw(w, k); {
	case granted:
		return nil
	case condemned:
		return errYielded
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return l.refuseFor(c, k, n)
}

func (l *ledger) refuseFor(c *charge, k kind, n int64) error {
	return l.refuse("no_room", status.Errorf(codes.ResourceExhausted,
		"no memory for a request of %d bytes of %s: try again later", n, c.of.of.key))
}

// inherit ends the calls whose shares a call gets, and waits until they have ended: only then is
// their memory free. If that takes too long, they get their shares back.
func (l *ledger) inherit(ctx context.Context, c *charge, taken []share) error {
	if len(taken) == 0 {
		return nil
	}
	charged(ctx)
	l.end(taken)
	limited, cancel := context.WithTimeout(ctx, l.bounds.Wait)
	defer cancel()
	for _, s := range taken {
		if l.outlive(limited, s.from) == nil {
			continue
		}
		l.mu.Lock()
		for _, s := range taken {
			if s.from.life != closed {
				l.addLocked(c, s.kind, -s.n)
			}
		}
		l.returnLocked(taken)
		l.mu.Unlock()
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		return l.refuseFor(c, s.kind, s.n)
	}
	l.enterPhase(c, busy)
	return nil
}

// end tells calls to end that must yield.
func (l *ledger) end(taken []share) {
	told := map[*charge]bool{}
	for _, s := range taken {
		if !told[s.from] {
			told[s.from] = true
			l.refused("yielded")
			l.expire(s.from)
		}
	}
}

func (l *ledger) expire(c *charge) {
	l.mu.Lock()
	expire := c.expire
	l.mu.Unlock()
	expire()
}

// outlive waits until a call that was told to end has freed everything. Its answer may have to be
// read first; its connection is closed if that takes long.
func (l *ledger) outlive(ctx context.Context, o *charge) error {
	timer := time.NewTimer(l.bounds.yieldsAfter())
	defer timer.Stop()
	for {
		select {
		case <-o.gone:
			return nil
		case <-timer.C:
			l.expire(o)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask gives a call n of a kind at once, or returns a wait. The caller must inherit the yielded
// shares.
func (l *ledger) ask(c *charge, k kind, n int64) (w *waiter, taken []share, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.condemned {
		return nil, nil, errYielded
	}
	c.enterPhase(busy)
	if len(l.queue[k]) == 0 || !l.fitsLocked(c.of, k, n) {
		var ok bool
		if taken, ok = l.fitLocked(c, k, n, nil); ok {
			l.addLocked(c, k, n)
			l.holdLocked(c, taken)
			return nil, taken, nil
		}
	}
	weight := l.weightLocked(c, k)
	taken, ok := l.fitLocked(c, waiting, weight, nil)
	if !ok {
		l.refused("waiting")
		return nil, nil, status.Errorf(codes.ResourceExhausted,
			"%d calls of %s wait for memory: try again later", c.of.of.now[waiting], c.of.of.key)
	}
	l.addLocked(c, waiting, weight)
	l.holdLocked(c, taken)
	if k == buffers { // its share comes after buffers: two calls would wait for each other
		l.freeLocked(c, messages, windows)
	}
	c.enterPhase(queued)
	w = &waiter{c, n, make(chan struct{})}
	l.queue[k] = append(l.queue[k], w)
	l.grantLocked(bytesOfCalls...)
	return w, taken, nil
}

// weightLocked returns as how many waiting calls a call counts: each may have sent a window, and
// one that waits for buffers a message besides.
func (l *ledger) weightLocked(c *charge, k kind) int64 {
	if k != buffers || l.bounds.Window == 0 {
		return 1
	}
	return 1 + c.now[messages]/int64(l.bounds.Window)
}

// reserveBuffers waits until a call that is being answered has at least n of buffers; 0: it needs
// none any more. One that has less returns that first: calls that wait for each other would wait
// for ever.
func (l *ledger) reserveBuffers(ctx context.Context, c *charge, n int64) error {
	l.mu.Lock()
	had := c.now
	if n == 0 || had[buffers] < n {
		l.freeLocked(c, buffers)
		l.grantLocked(buffers)
	}
	l.mu.Unlock()
	if n == 0 || had[buffers] >= n {
		return nil
	}
	if err := l.reserve(ctx, c, buffers, n); err != nil {
		return err
	}
	for _, k := range []kind{messages, windows} {
		if err := l.restore(ctx, c, k, had[k]); err != nil {
			return err
		}
	}
	return nil
}

// restore waits until a call has n of a kind again, if it had to return it.
func (l *ledger) restore(ctx context.Context, c *charge, k kind, n int64) error {
	l.mu.Lock()
	has := c.now[k]
	l.mu.Unlock()
	if has == n {
		return nil
	}
	return l.reserve(ctx, c, k, n)
}

// press looks for calls that yield to a waiting one, and returns their shares.
func (l *ledger) press(w *waiter, k kind) []share {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	default:
	}
	taken, ok := l.fitLocked(w.call, k, w.n, nil)
	if !ok || w.call.condemned {
		return nil
	}
	l.giveLocked(w, k)
	l.holdLocked(w.call, taken)
	return taken
}

// withdraw ends the wait of a call that gives up. It may have got its resources.
func (l *ledger) withdraw(w *waiter, k kind) (granted, condemned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.ready:
		return true, false
	default:
	}
	l.queue[k] = slices.DeleteFunc(l.queue[k], func(o *waiter) bool { return o == w })
	l.freeLocked(w.call, waiting)
	return false, w.call.condemned
}

// grantLocked gives free resources of some kinds to waiting calls: first to those whose connection
// has least.
func (l *ledger) grantLocked(ks ...kind) {
	for _, k := range ks {
		var full map[*account]bool // those at their limit
		for len(l.queue[k]) > 0 {
			w := l.nextLocked(k, full)
			if w == nil {
				break
			}
			c := w.call.of
			if c.of.now[k]+w.n > l.one[k] {
				if full == nil {
					full = map[*account]bool{}
				}
				full[c.of] = true
				continue
			}
			if l.now[k]+w.n > l.all[k] {
				break
			}
			l.giveLocked(w, k)
		}
	}
}

// giveLocked gives a call the resources that it waits for.
func (l *ledger) giveLocked(w *waiter, k kind) {
	l.queue[k] = slices.DeleteFunc(l.queue[k], func(o *waiter) bool { return o == w })
	l.freeLocked(w.call, waiting)
	l.addLocked(w.call, k, w.n)
	w.call.enterPhase(busy)
	close(w.ready)
}

// nextLocked returns the next waiting call of a kind; nil: none.
func (l *ledger) nextLocked(k kind, full map[*account]bool) (next *waiter) {
	for _, w := range l.queue[k] {
		if w.call.condemned || full[w.call.of.of] {
			continue
		}
		if next == nil || w.call.of.now[k] < next.call.of.now[k] {
			next = w
		}
	}
	return next
}

// fitsLocked reports whether a line can have n more of a kind.
func (l *ledger) fitsLocked(c *line, k kind, n int64) bool {
	return l.now[k]+n <= l.all[k] && c.of.now[k]+n <= l.one[k]
}

// fitLocked takes from others the resources that a call lacks to have n more of a kind, first from
// those that have yielded before. It returns all shares, and whether the call can have them now; if
// not, it has taken nothing.
func (l *ledger) fitLocked(c *charge, k kind, n int64, taken []share) (_ []share, ok bool) {
	had := len(taken)
	for !l.fitsLocked(c.of, k, n) {
		own, all := c.of.of.now[k]+n-l.one[k], l.now[k]+n-l.all[k]
		v := l.richestLocked(c.of, k, n)
		for _, s := range taken {
			if s.from.now[k] > 0 && (own <= 0 || s.from.of.of == c.of.of) {
				v = s.from
			}
		}
		if v == nil {
			l.returnLocked(taken[had:])
			return taken[:had], false
		}
		some := min(v.now[k], max(own, all))
		l.addLocked(v, k, -some)
		taken = append(taken, share{v, k, some})
	}
	return taken, true
}

// returnLocked returns shares.
func (l *ledger) returnLocked(taken []share) {
	for _, s := range taken {
		if s.from.life != closed {
			l.addLocked(s.from, s.kind, s.n)
		}
	}
}

// holdLocked makes those yield whose shares a call gets; it waits for them.
func (l *ledger) holdLocked(c *charge, taken []share) {
	for _, s := range taken {
		s.from.condemned = true
		if s.from.gone == nil {
			s.from.gone = make(chan struct{})
		}
		c.enterPhase(queued)
	}
}

// richestLocked returns the call that must yield for n more of a kind on a line: of the line that
// has most of it, of the caller that has most if all have too much; and of its calls the one that
// has waited longest for its client. Nil: all have as little as this one, or are not waiting.
func (l *ledger) richestLocked(c *line, k kind, n int64) (richest *charge) {
	a, mine, share := c.of, c.now[k], l.one[k]/int64(len(c.of.lines))
	if a.now[k]+n <= l.one[k] {
		for _, o := range l.accounts {
			if o.now[k] > a.now[k] {
				a = o
			}
		}
	}
	if a != c.of {
		mine, share = c.of.now[k], l.all[k]/int64(len(l.accounts))
	}
	if mine > 0 && mine+n > share || time.Since(a.searched[k]) < searchEvery {
		return nil
	}
	var most int64
	for _, o := range a.lines {
		has := o.now[k]
		if a != c.of {
			has = a.now[k]
		}
		if o == c || has <= mine || o.now[k] <= most {
			continue
		}
		if k == waiting && has <= mine+n { // it would only be the other way round
			continue
		}
		if v := o.longest(k, l.bounds.yieldsAfter(), a != c.of); v != nil {
			richest, most = v, o.now[k]
		}
	}
	if richest == nil {
		a.searched[k] = time.Now()
	}
	return richest
}

// longest returns the call with some of a kind that has waited longest, and long enough, for its
// client, to send or to read, or, if another caller finds too many calls, for the progress of
// others; if too many wait for room, the one that has waited longest. Nil: none.
func (c *line) longest(k kind, least time.Duration, another bool) (longest *charge) {
	at := arriving
	if k == waiting {
		at, least = queued, 0
	}
	for o := range c.open {
		yields := o.phase == at || another && (k == calls || k == guests) && o.waits && o.phase == busy
		if yields && o.now[k] > 0 && time.Since(o.since) >= least && (longest == nil || o.since.Before(longest.since)) {
			longest = o
		}
	}
	return longest
}
