package fuse

import (
	"sync"
	"time"
)

// stallClock adds up the time in which at least one access waits. The zero
// stallClock is ready; onEnd is set before the first use.
type stallClock struct {
	onEnd func(time.Duration) // may be nil; called without the lock

	mu      sync.Mutex
	waiting int
	since   time.Time     // when waiting became 1
	past    time.Duration // of the waits that are over
}

func (c *stallClock) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 0 {
		c.since = time.Now()
	}
	c.waiting++
}

func (c *stallClock) end() {
	c.mu.Lock()
	c.waiting--
	over := c.waiting == 0
	var d time.Duration
	if over {
		d = time.Since(c.since)
		c.past += d
	}
	c.mu.Unlock()
	if over && c.onEnd != nil {
		c.onEnd(d)
	}
}

func (c *stallClock) total() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 0 {
		return c.past
	}
	return c.past + time.Since(c.since)
}
