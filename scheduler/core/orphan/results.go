package orphan

import (
	"fmt"
	"iter"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// A Pool decides for which operations a run of its workers is a result.
type Pool interface{ Serves(*request.Operation) bool }

// A Result is a worker's result of an unknown operation.
type Result struct {
	Action   request.Ran
	Pool     Pool
	Worker   string // the worker's key
	Response *repb.ExecuteResponse

	kept    time.Time
	timer   timer.Timer
	element fifo.Anchor
}

// Kept is when the result was added.
func (r *Result) Kept() time.Time { return r.kept }

// Until returns when a result expires.
func (rs *Results) Until(r *Result) time.Time { return rs.clock.Timers.When(&r.timer) }

// Results are the kept results. Each owns a timer, and must be removed when that is due.
type Results struct {
	clock *timer.Clock
	// keep is for how long each is kept; most is how many at once.
	keep time.Duration
	most int
	// byAction has the latest of each action last, order the oldest of all first.
	byAction map[request.Key][]*Result
	order    fifo.List[*Result]
}

// New returns Results that keep each result for some time, and a limited number of them.
func New(c *timer.Clock, keep time.Duration, most int) *Results {
	return &Results{clock: c, keep: keep, most: most, byAction: map[request.Key][]*Result{}}
}

// Add keeps a result.
func (rs *Results) Add(r *Result) {
	r.kept, r.timer.Owner = rs.clock.Now, r
	r.element = rs.order.PushBack(r)
	rs.byAction[r.Action.Key] = append(rs.byAction[r.Action.Key], r)
	rs.clock.Timers.Set(&r.timer, rs.clock.Now.Add(rs.keep))
	if rs.order.Len() > rs.most {
		oldest, _ := rs.order.Front()
		rs.Remove(oldest)
	}
}

// Remove forgets a result that is kept.
func (rs *Results) Remove(r *Result) {
	rs.clock.Timers.Stop(&r.timer)
	rs.order.Remove(r.element)
	k := r.Action.Key
	if left := slices.DeleteFunc(rs.byAction[k], func(x *Result) bool { return x == r }); len(left) > 0 {
		rs.byAction[k] = left
	} else {
		delete(rs.byAction, k)
	}
}

// Find returns the latest result for an operation that asks for an action, or nil.
func (rs *Results) Find(spec *request.Operation, action request.Key) *Result {
	for _, r := range slices.Backward(rs.byAction[action]) {
		if r.Action.For(spec.Instance) && r.Pool.Serves(spec) {
			return r
		}
	}
	return nil
}

// All yields the results, the oldest first.
func (rs *Results) All() iter.Seq[*Result] { return rs.order.Values() }

// Actions returns the number of actions with results.
func (rs *Results) Actions() int { return len(rs.byAction) }

// Check returns an inconsistency of the results, empty if there is none.
func (rs *Results) Check() string {
	n := 0
	for _, of := range rs.byAction {
		n += len(of)
	}
	if n != rs.order.Len() || n > rs.most {
		return fmt.Sprintf("%d orphan results are by action, %d are in order", n, rs.order.Len())
	}
	return ""
}
