package timer

import (
	"math"
	"time"
)

// A Clock has the time of the current event, and the timers. It stands still between events; its
// owner moves it, and handles the timers that are due.
type Clock struct {
	Now    time.Time
	Timers Heap
	// zero is when Awake is 0, if nothing is lost.
	zero time.Time
	// lost is the time during which the machine slept.
	lost time.Duration
}

// PutOff postpones all timers by d, during which the machine slept.
func (c *Clock) PutOff(d time.Duration) {
	c.Timers.Shift(d)
	c.lost += d
}

// Awake returns how long the machine has been awake since the first call of Awake. The result is a
// third of the size of a time.Time, and monotonic.
func (c *Clock) Awake() time.Duration {
	if c.zero.IsZero() {
		c.zero = c.Now.Add(-c.lost)
	}
	return c.Now.Sub(c.zero) - c.lost
}

// When returns the time at which Awake will return a value, if the machine does not sleep until
// then.
func (c *Clock) When(awake time.Duration) time.Time { return c.zero.Add(awake).Add(c.lost) }

// After returns the time of Clock.Awake at which an object that began at another one has waited for
// so long; for the longest Duration that is never.
func After(awake, wait time.Duration) time.Duration {
	if awake > 0 && wait > math.MaxInt64-awake {
		return math.MaxInt64
	}
	return awake + wait
}
