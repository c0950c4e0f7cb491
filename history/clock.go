package history

import "time"

const (
	// clockLeap is the least change of the wall clock, against the monotonic one, that counts as a
	// leap.
	clockLeap = time.Minute
	// clockTrial is for how long a wall clock must not leap before records are removed for their age: a
	// machine may start with a wrong clock, and someone may set it wrong.
	clockTrial = time.Hour
)

// A clock tells whether the wall clock says how old records are. The zero value has just started.
type clock struct {
	// ahead is by how much more than the monotonic clock the wall clock has advanced, since when it
	// has done so without a leap.
	ahead, since time.Duration
	begin        time.Time
}

// isTrusted reports whether the wall clock has not leapt for that long. elapsed is the monotonic time
// since the start.
func (c *clock) isTrusted(wall time.Time, elapsed, trial time.Duration) bool {
	wall = wall.Round(0) // without monotonic time
	if c.begin.IsZero() {
		c.begin, c.since = wall.Add(-elapsed), elapsed
	}
	ahead := wall.Sub(c.begin) - elapsed
	if (ahead - c.ahead).Abs() >= clockLeap {
		c.since = elapsed
	}
	c.ahead = ahead
	return elapsed-c.since >= trial
}
