package spill

import (
	"cmp"
	"time"
)

// A Load is the expected work of the tasks in a queue.
type Load struct {
	// Known is the sum of the expected durations of waiting tasks, Unknown the number of those
	// without one.
	Known   time.Duration
	Unknown int
	// Typical is the mean duration of tasks on workers of the queue, weighted towards the latest
	// ones; 0 before the first has ended.
	Typical time.Duration
}

// newest is the share of the last run in Load.Typical.
const newest = 1.0 / 8

// Ran adds the duration of a task on a worker.
func (l *Load) Ran(d time.Duration) {
	if l.Typical == 0 {
		l.Typical = d
		return
	}
	l.Typical += time.Duration(float64(d-l.Typical) * newest)
}

// Add counts n tasks with an expected duration; 0 is unknown.
func (l *Load) Add(expected time.Duration, n int) {
	if expected == 0 {
		l.Unknown += n
	}
	l.Known += time.Duration(n) * expected
}

// Wait returns the expected wait of one more task until one of so many busy workers is free for it,
// if all waiting tasks go first: at most 1000 hours.
func (l *Load) Wait(workers int) time.Duration {
	all := float64(l.Known) + float64(l.Unknown+1)*float64(l.Typical)
	return time.Duration(max(0, min(all/float64(max(workers, 1)), float64(longest))))
}

// Mean returns the expected duration of each of so many waiting tasks.
func (l *Load) Mean(waiting int) time.Duration {
	typical := cmp.Or(l.Typical, Unknown)
	all := float64(l.Known) + float64(l.Unknown)*float64(typical)
	return max(time.Duration(all/float64(max(waiting, 1))), time.Millisecond)
}
