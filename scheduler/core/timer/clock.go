package timer

import "time"

// A Clock has the time of the present event, and what is due later. It stands still between events; whoever moves it knows what to
// do for the owner of each timer.
type Clock struct {
	Now    time.Time
	Timers Heap
	// lost is the time in which nobody was awake.
	lost time.Duration
}

// PutOff puts all that is due off by d, in which nobody was awake.
func (c *Clock) PutOff(d time.Duration) {
	c.Timers.Shift(d)
	c.lost += d
}

// Awake is the present time without what was lost so far. Between two such times is how long somebody was awake.
func (c *Clock) Awake() time.Time { return c.Now.Add(-c.lost) }

// When is when it will be that Awake returns a time, if nothing more is lost.
func (c *Clock) When(awake time.Time) time.Time { return awake.Add(c.lost) }
