package spill

import (
	"math"
	"time"
)

// Exponent is the default x.
const Exponent = 0.5

// A Queue has the tasks that wait for a size class.
type Queue struct {
	// Waiting is how many actions wait for how many Workers that take work.
	Waiting, Workers int
	// Typical is how long an action of the queue is thought to take.
	Typical time.Duration
	// Startup is how long the first worker takes to come, while there is none.
	Startup time.Duration
}

// Unknown is how long an action is thought to take when nothing is known of any.
const Unknown = 10 * time.Second

// Again is the part of the spilling threshold below which a queue stops spilling, once it has
// begun: a short queue does not alternate between the two.
const Again = 0.5

// Turns is how many turns an action waits for a worker of a class before it runs on one of a larger
// class that lacks or has so many more properties; x is from 0 to 1, both excluded. It is 0 for a
// class that is no larger.
func Turns(class, larger uint32, stranger int, x float64) float64 {
	times := math.Ldexp(float64(max(larger, 1))/float64(max(class, 1)), stranger)
	return math.Pow(max(times, 1), x/(1-x)) - 1
}

// Ahead is for how many turns the last one in the queue is expected to wait.
func (q Queue) Ahead() float64 {
	if q.Workers > 0 {
		return float64(q.Waiting) / float64(q.Workers)
	}
	return q.turns(q.Startup) + float64(q.Waiting)
}

// Patience is how long an action waits that has so many turns.
func (q Queue) Patience(turns float64) time.Duration {
	return time.Duration(min(turns*float64(q.Typical), float64(longest)))
}

// longest limits the wait of any task.
const longest = 1000 * time.Hour

// turns is for how many turns of the queue a time is enough.
func (q Queue) turns(d time.Duration) float64 { return float64(d) / float64(max(q.Typical, 1)) }

// Worth reports whether a queue whose next action has waited so long should use a worker that is
// worth so many turns. open: it has done so, and its queue has not become short since.
func (q Queue) Worth(turns float64, waited time.Duration, open bool) bool {
	if open {
		turns *= Again
	}
	return q.Ahead() > turns || waited >= q.Patience(turns)
}

// Strain compares queues that are worth the same worker, by how much.
func (q Queue) Strain(turns float64, waited time.Duration) float64 {
	return max(q.Ahead(), q.turns(waited)) / max(turns, least)
}

// least is as many turns as none, where one divides by them.
const least = 1e-9
