package census

import (
	"context"
	"time"
)

const (
	// longestFreeing is how long Left waits for the kernel.
	longestFreeing = 15 * time.Second
	// freeingInterval is how often it counts meanwhile.
	freeingInterval = 100 * time.Millisecond
)

// Left reports whether the end of a command has freed more objects than one command may have; there
// were before in all. It waits while the kernel frees them, and until there is no overuse with an
// unknown owner any more. If Found still reports that, all running commands must be stopped, and
// Begin be called.
func (c *Census) Left(ctx context.Context, before int) (own bool) {
	ctx, cancel := context.WithTimeout(ctx, longestFreeing)
	defer cancel()
	for least, since := before, time.Now(); ; {
		now, ok := c.again(ctx)
		own = ok && before-now.all > c.kind.Most
		if own && !c.Found() && least-now.all <= c.kind.Most/falls {
			return true
		}
		if ok && now.all < least {
			least, since = now.all, time.Now()
		}
		if time.Since(since) >= patience {
			return own
		}
		select {
		case <-time.After(freeingInterval):
		case <-ctx.Done():
			return own
		}
	}
}

// Over reports whether overuse that was found is over.
func (c *Census) Over(ctx context.Context) bool {
	_, _ = c.again(ctx)
	return !c.Found()
}

// again counts, and forgets overuse that is over.
func (c *Census) again(ctx context.Context) (now left, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var count shared[left]
	if now, ok = count.get(ctx, c.left); !ok || now.err != nil {
		return now, false
	}
	c.acquit(now)
	return now, true
}

// left is a count after the end of a command.
type left struct {
	others others // before
	begun  int    // likewise
	all    int
	hidden int
	err    error
}

// left counts what there is now.
func (c *Census) left() (l left) {
	c.mu.Lock()
	t := &tally{others: c.others, begun: c.begun}
	c.mu.Unlock()
	all := c.all(t)
	l = left{others: t.others, begun: t.begun, all: all.n, err: all.err}
	if l.err == nil {
		l.hidden, _, l.err = c.hidden(all.n, t.others)
	}
	return l
}

// acquit forgets the overuse that was found, if it is over.
func (c *Census) acquit(l left) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.begun == c.begun && l.hidden-l.others.hidden <= c.kind.Most && l.all-l.others.all <= c.kind.Countable {
		c.found, c.since, c.latest = false, time.Time{}, nil
		c.begun++
	}
}
