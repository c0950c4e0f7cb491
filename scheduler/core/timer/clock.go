package timer

import (
	"math"
	"time"
)

// A Clock has the time of the present event, and what is due later. It stands still between events;
// whoever moves it knows what to do for the owner of each timer.
type Clock struct {
	Now    time.Time
	Timers Heap
	// zero is when Awake is 0, if nothing is lost.
	zero time.Time
	// lost is the time in which nobody was awake.
	lost time.Duration
}

// PutOff puts all that is due off by d, in which nobody was awake.
func (c *Clock) PutOff(d time.Duration) {
	c.Timers.Shift(d)
	c.lost += d
}

// Awake is for how long somebody has been awake since Awake was first asked. It is a third of the
// size of a time, and has no less of the monotonic clock.
func (c *Clock) Awake() time.Duration {
	if c.zero.IsZero() {
		c.zero = c.Now.Add(-c.lost)
	}
	return c.Now.Sub(c.zero) - c.lost
}

// When is when it will be that Awake returns that, if nothing more is lost.
func (c *Clock) When(awake time.Duration) time.Time { return c.zero.Add(awake).Add(c.lost) }

// After is when something has waited for so long that began to at a time of Clock.Awake; what waits
// for as long as a Duration can be does so for ever.
func After(awake, wait time.Duration) time.Duration {
	if awake > 0 && wait > math.MaxInt64-awake {
		return math.MaxInt64
	}
	return awake + wait
}
