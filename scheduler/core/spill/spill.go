package spill

import (
	"math"
	"time"
)

// Exponent is the default x.
const Exponent = 0.5

// A Queue describes the tasks that wait for a size class.
type Queue struct {
	// Waiting is the number of waiting actions, Workers the number of workers that take work.
	Waiting, Workers int
	// Typical is the expected duration of an action of the queue.
	Typical time.Duration
	// Startup is the time until the first worker comes, while there is none.
	Startup time.Duration
}

// Unknown is the expected duration of an action about which nothing is known.
const Unknown = 10 * time.Second

// Again is the share of the spilling threshold below which a queue that spills stops. It keeps a
// short queue from switching back and forth.
const Again = 0.5

// Turns returns how many turns an action waits for a worker of a class before it runs on one of a
// larger class, which lacks or has so many more properties. x is between 0 and 1. It is 0 for a
// class that is not larger.
func Turns(class, larger uint32, stranger int, x float64) float64 {
	times := math.Ldexp(float64(max(larger, 1))/float64(max(class, 1)), stranger)
	return math.Pow(max(times, 1), x/(1-x)) - 1
}

// Ahead returns how many turns the last action in the queue is expected to wait.
func (q Queue) Ahead() float64 {
	if q.Workers > 0 {
		return float64(q.Waiting) / float64(q.Workers)
	}
	return q.turns(q.Startup) + float64(q.Waiting)
}

// Patience returns how long an action with so many turns waits.
func (q Queue) Patience(turns float64) time.Duration {
	return time.Duration(min(turns*float64(q.Typical), float64(longest)))
}

// longest limits the wait of any task.
const longest = 1000 * time.Hour

// turns is for how many turns of the queue a time is enough.
func (q Queue) turns(d time.Duration) float64 { return float64(d) / float64(max(q.Typical, 1)) }

// Worth reports whether a queue should use a worker that is worth so many turns, if its next action
// has waited for so long. open means that the queue has done so, and has not become short since.
func (q Queue) Worth(turns float64, waited time.Duration, open bool) bool {
	if open {
		turns *= Again
	}
	return q.Ahead() > turns || waited >= q.Patience(turns)
}

// Strain returns how much a queue needs a worker, to compare queues for which the same worker is
// worth as much.
func (q Queue) Strain(turns float64, waited time.Duration) float64 {
	return max(q.Ahead(), q.turns(waited)) / max(turns, least)
}

// least is as many turns as none, where one divides by them.
const least = 1e-9
