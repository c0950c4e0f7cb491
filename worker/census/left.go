package census

import (
	"context"
	"math"
	"time"

	"github.com/forerunner-build/forerunner/pause"
)

const (
	// longestFreeing is how long Left waits for the kernel.
	longestFreeing = 15 * time.Second
	// freeingInterval is how often it counts meanwhile.
	freeingInterval = 100 * time.Millisecond
)

// Left waits while the kernel frees objects of commands that have ended: until there are few more
// than others have, until it has freed few for some seconds, or until ctx ends. Begin would take what
// is left for objects of others, and another command could then hide as many.
func (c *Census) Left(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, longestFreeing)
	defer cancel()
	c.mu.Lock()
	t := &tally{others: c.others}
	c.mu.Unlock()
	few := c.kind.Most / falls
	for least, since := math.MaxInt, time.Now(); ; {
		var count shared[total]
		now, ok := count.get(ctx, func() total { return c.all(t) })
		if !ok || now.err != nil || now.n <= t.others.all+few {
			return
		}
		if now.n < least-few {
			least, since = now.n, time.Now()
		}
		if time.Since(since) >= patience {
			return
		}
		if pause.For(ctx, freeingInterval) != nil {
			return
		}
	}
}
