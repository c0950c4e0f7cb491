//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"sync"
)

func actionName(i int) string { return fmt.Sprintf("action%d", i) }

// runActions runs all actions, as many at a time as there are clients, and evenly over the steps of
// disturb.
func (c *cluster) runActions(ctx context.Context, steps int) {
	numbers := make(chan int)
	var clients sync.WaitGroup
	for range clusterClients {
		clients.Go(func() {
			for i := range numbers {
				if c.runAction(ctx, work{name: actionName(i), middle: "sleep 0.1"}) {
					c.right.Add(1)
				}
			}
		})
	}
	for i := range clusterActions {
		until(ctx, 0, func() bool {
			done := c.tally.faults.Load() + c.killed.Load()
			return c.calm.Load() || int64(i) < (done+2)*clusterActions/int64(steps+2)
		})
		numbers <- i
	}
	close(numbers)
	clients.Wait()
}

// countLate counts runs that began after the result existed, except those of a worker that had the
// action and was disconnected, so that it could not know. With forget it ignores the runs so far,
// and those of a short time after.
func (c *cluster) countLate(forget bool) {
	now := c.Starts()
	c.done.mu.Lock()
	defer c.done.mu.Unlock()
	for name, n := range c.done.counts {
		if now[name] > n && !forget {
			c.Logf("%s began %d times, %d of them when its result was acknowledged", name, now[name], n)
			c.late.Add(int64(now[name] - n))
		}
		c.done.counts[name] = now[name]
	}
}
