package runner

import "time"

// minTick bounds how often a clock that stands still is looked at.
const minTick = 10 * time.Millisecond

// clock measures a timeout that stands still while the command waits for storage.
type clock struct {
	start   time.Time
	timeout time.Duration        // 0: never
	stalled func() time.Duration // may be nil
	base    time.Duration        // what stalled said at the start
}

func newClock(timeout time.Duration, stalled func() time.Duration) clock {
	c := clock{start: time.Now(), timeout: timeout, stalled: stalled}
	if stalled != nil {
		c.base = stalled()
	}
	return c
}

// left is the time the command may still take; at 0 it is over.
func (c clock) left() time.Duration {
	used := time.Since(c.start)
	if c.stalled != nil {
		used -= c.stalled() - c.base
	}
	return max(0, c.timeout-used)
}

// timer fires when it is worth looking at left; nil when there is no timeout.
func (c clock) timer() <-chan time.Time {
	if c.timeout == 0 {
		return nil
	}
	return time.After(max(c.left(), minTick))
}
