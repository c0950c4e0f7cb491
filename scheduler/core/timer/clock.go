package timer

import (
	"math"
	"time"
)

// A Clock has the time of the current event, and the timers. It stands still between events; the
// code that moves it knows how to handle the owner of each timer.
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

// Awake is how long the machine has been awake since the first call of Awake. It is a third of the
// size of a time, and keeps the monotonic clock.
func (c *Clock) Awake() time.Duration {
	if c.zero.IsZero() {
		c.zero = c.Now.Add(-c.lost)
	}
	return c.Now.Sub(c.zero) - c.lost
}

// When is when it will be that Awake returns that, if nothing more is lost.
func (c *Clock) When(awake time.Duration) time.Time { return c.zero.Add(awake).Add(c.lost) }

// After is when an object that began at a time of Clock.Awake will have waited so long; for the
// longest Duration that is never.
func After(awake, wait time.Duration) time.Duration {
	if awake > 0 && wait > math.MaxInt64-awake {
		return math.MaxInt64
	}
	return awake + wait
}
