package runner

import "time"

// minTick limits how often a paused clock is read.
const minTick = 10 * time.Millisecond

// clock measures a timeout that stands still while the command waits for storage.
type clock struct {
	start   time.Time
	timeout time.Duration        // 0: never
	stalled func() time.Duration // may be nil
	// maxStalled is how long the clock may stand still in all; 0: for ever.
	maxStalled time.Duration
	base       time.Duration // value of stalled at the start
}

func newClock(c *Command) clock {
	k := clock{start: time.Now(), timeout: c.Timeout, stalled: c.Stalled, maxStalled: c.MaxStalled}
	if c.Stalled != nil {
		k.base = c.Stalled()
	}
	return k
}

// left is the time the command may still take; at 0 it is over.
func (c clock) left() time.Duration {
	used := time.Since(c.start)
	if c.stalled != nil {
		stalled := c.stalled() - c.base
		if c.maxStalled > 0 {
			stalled = min(stalled, c.maxStalled)
		}
		used -= stalled
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
