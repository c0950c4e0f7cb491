package spill

import (
	"cmp"
	"time"
)

// A Load is how much time of its workers the tasks of a queue are expected to take.
type Load struct {
	// Known is the sum of the expected durations of waiting tasks, Unknown counts those without
	// one.
	Known   time.Duration
	Unknown int
	// Typical is a mean of how long workers of the queue had a task, in which the last ones
	// count most; 0 before the first has ended.
	Typical time.Duration
}

// newest is the share of the last run in Load.Typical.
const newest = 1.0 / 8

// Ran takes how long a worker had a task.
func (l *Load) Ran(d time.Duration) {
	if l.Typical == 0 {
		l.Typical = d
		return
	}
	l.Typical += time.Duration(float64(d-l.Typical) * newest)
}

// Add counts n tasks of an expected duration, 0 being unknown.
func (l *Load) Add(expected time.Duration, n int) {
	if expected == 0 {
		l.Unknown += n
	}
	l.Known += time.Duration(n) * expected
}

// Wait is how long a further task is expected to wait until one of so many busy workers is
// free for it, if all that waits goes before it: at most 1000 hours.
func (l *Load) Wait(workers int) time.Duration {
	all := float64(l.Known) + float64(l.Unknown+1)*float64(l.Typical)
	return time.Duration(max(0, min(all/float64(max(workers, 1)), float64(longest))))
}

// Mean is how long one of so many waiting tasks is thought to take.
func (l *Load) Mean(waiting int) time.Duration {
	typical := cmp.Or(l.Typical, Unknown)
	all := float64(l.Known) + float64(l.Unknown)*float64(typical)
	return max(time.Duration(all/float64(max(waiting, 1))), time.Millisecond)
}
