package intake

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// pressEvery is how often a call that waits looks for one that makes room.
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

// reserve waits until a call has n of a kind. A call asks for kinds in the order of bytesOfCalls, and for none of
// which it has some.
func (l *ledger) reserve(ctx context.Context, c *charge, k kind, n int64) error {
	w, ended, err := l.ask(c, k, n)
	l.end(ended)
	if err != nil || w == nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, l.bounds.Wait)
	defer cancel()
	ticker := time.NewTicker(pressEvery)
	defer ticker.Stop()
	for limited.Err() == nil {
		select {
		case <-w.ready:
			return nil
		case <-ticker.C:
			l.end(l.press(w, k))
		case <-limited.Done():
		}
	}
	switch granted, ended := l.withdraw(w, k); {
	case granted:
		return nil
	case ended:
		return errYielded
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return l.refuse("no_room", status.Errorf(codes.ResourceExhausted,
		"no memory for a request of %d bytes of %s: try again later", n, c.of.of.key))
}

// ask gives a call n of a kind at once, or returns what it waits for. What was ended for it is to be told so.
func (l *ledger) ask(c *charge, k kind, n int64) (w *waiter, ended []*charge, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.ended {
		return nil, nil, errYielded
	}
	c.enterPhase(busy)
	if len(l.queue[k]) == 0 || !l.fitsLocked(c.of, k, n) {
		var ok bool
		if ended, ok = l.fitLocked(c, k, n); ok {
			l.addLocked(c, k, n)
			l.grantLocked(bytesOfCalls...)
			return nil, ended, nil
		}
	}
	more, ok := l.fitLocked(c, waiting, l.placesLocked(c, k))
	ended = append(ended, more...)
	if !ok {
		l.refused("waiting")
		return nil, ended, status.Errorf(codes.ResourceExhausted,
			"%d calls of %s wait for memory: try again later", c.of.of.now[waiting], c.of.of.key)
	}
	l.addLocked(c, waiting, l.placesLocked(c, k))
	if k == buffers { // what it has comes after buffers: two calls would wait for each other
		l.freeLocked(c, messages, windows)
	}
	c.enterPhase(queued)
	w = &waiter{c, n, make(chan struct{})}
	l.queue[k] = append(l.queue[k], w)
	l.grantLocked(bytesOfCalls...)
	return w, ended, nil
}

// placesLocked returns as how many that wait a call counts: each can have brought a window, and one that waits for buffers
// a message besides.
func (l *ledger) placesLocked(c *charge, k kind) int64 {
	if k != buffers || l.bounds.Window == 0 {
		return 1
	}
	return 1 + c.now[messages]/int64(l.bounds.Window)
}

// reserveBuffers waits until a call that is being answered has at least n of buffers; 0: it needs none any more. One that
// has less gives that back first: calls that wait for each other would wait for ever.
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

// restore waits until a call has n of a kind again, if it had to give it back.
func (l *ledger) restore(ctx context.Context, c *charge, k kind, n int64) error {
	l.mu.Lock()
	has := c.now[k]
	l.mu.Unlock()
	if has == n {
		return nil
	}
	return l.reserve(ctx, c, k, n)
}

// press looks for calls that make room for one that waits.
func (l *ledger) press(w *waiter, k kind) []*charge {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	default:
	}
	ended, _ := l.fitLocked(w.call, k, w.n)
	l.grantLocked(k)
	l.grantLocked(bytesOfCalls...)
	return ended
}

// withdraw ends the wait of a call that does not want to wait any more. It may have got what it waited for.
func (l *ledger) withdraw(w *waiter, k kind) (granted, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.ready:
		return true, false
	default:
	}
	l.queue[k] = slices.DeleteFunc(l.queue[k], func(o *waiter) bool { return o == w })
	l.freeLocked(w.call, waiting)
	return false, w.call.ended
}

// grantLocked gives what there is of some kinds to calls that wait for it: to those first whose
// connection has least.
func (l *ledger) grantLocked(ks ...kind) {
	for _, k := range ks {
		var full map[*account]bool // those who have all that one can have
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
			l.queue[k] = slices.DeleteFunc(l.queue[k], func(o *waiter) bool { return o == w })
			l.freeLocked(w.call, waiting)
			l.addLocked(w.call, k, w.n)
			w.call.enterPhase(busy)
			close(w.ready)
		}
	}
}

// nextLocked returns who is to get of a kind next; nil: nobody.
func (l *ledger) nextLocked(k kind, full map[*account]bool) (next *waiter) {
	for _, w := range l.queue[k] {
		if w.call.ended || full[w.call.of.of] {
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

// fitLocked reports whether a call can have n more of a kind, once those are told that were ended for it.
func (l *ledger) fitLocked(c *charge, k kind, n int64) (ended []*charge, ok bool) {
	for !l.fitsLocked(c.of, k, n) {
		v := l.richestLocked(c.of, k, n)
		if v == nil {
			return ended, false
		}
		v.ended = true
		l.dropLocked(v)
		ended = append(ended, v)
	}
	return ended, true
}

// richestLocked returns the call that is to make room for n more of a kind on a line: of the line that has most of it,
// of the caller who has most if all have too much; and of its calls the one that has waited longest for its
// client. Nil: all have as little as this one, or are not waited for.
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
		if v := o.longest(k, l.bounds.yieldsAfter()); v != nil {
			richest, most = v, o.now[k]
		}
	}
	if richest == nil {
		a.searched[k] = time.Now()
	}
	return richest
}

// longest returns the call with some of a kind that has waited longest, and long enough, for its client, to send or to read, or,
// where calls are too many, for what others do; of those that wait for room, where they are too many, that which has waited
// longest. Nil: none does.
func (c *line) longest(k kind, least time.Duration) (longest *charge) {
	at := arriving
	if k == waiting {
		at, least = queued, 0
	}
	for o := range c.open {
		yields := o.phase == at || (k == calls || k == guests) && o.waits && o.phase == busy
		if yields && o.now[k] > 0 && time.Since(o.since) >= least && (longest == nil || o.since.Before(longest.since)) {
			longest = o
		}
	}
	return longest
}

// end ends calls that made room.
func (l *ledger) end(ended []*charge) {
	for _, c := range ended {
		l.refused("yielded")
		c.expire()
	}
}
