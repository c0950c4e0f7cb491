package core

import (
	"cmp"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/spill"
)

// A load is what the tasks of a queue are thought to take of its workers' time.
type load struct {
	// known is the sum of what is expected of the waiting tasks, unknown counts those of which
	// nothing is.
	known   time.Duration
	unknown int
	// typical is a mean of how long workers of the queue had a task, in which the last ones
	// count most; 0 before the first has ended.
	typical time.Duration
}

// newest is the share of the last run in load.typical.
const newest = 1.0 / 8

// longestWait is as much as anybody wants to know.
const longestWait = 1000 * time.Hour

// ran takes how long a worker had a task.
func (l *load) ran(d time.Duration) {
	if l.typical == 0 {
		l.typical = d
		return
	}
	l.typical += time.Duration(float64(d-l.typical) * newest)
}

// add counts n tasks of an expected duration, 0 being unknown.
func (l *load) add(expected time.Duration, n int) {
	if expected == 0 {
		l.unknown += n
	}
	l.known += time.Duration(n) * expected
}

// wait is how long a further task is expected to wait until one of so many busy workers is
// free for it, if all that waits goes before it: at most longestWait.
func (l *load) wait(workers int) time.Duration {
	all := float64(l.known) + float64(l.unknown+1)*float64(l.typical)
	return time.Duration(max(0, min(all/float64(max(workers, 1)), float64(longestWait))))
}

// mean is how long one of so many waiting tasks is thought to take.
func (l *load) mean(waiting int) time.Duration {
	typical := cmp.Or(l.typical, spill.Unknown)
	all := float64(l.known) + float64(l.unknown)*float64(typical)
	return max(time.Duration(all/float64(max(waiting, 1))), time.Millisecond)
}
