package core

import (
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// An orphanResult is a result that a worker held when nobody had asked for it, as after
// a restart of the scheduler. It is kept for a client to come back to.
type orphanResult struct {
	action   action
	pool     *pool
	worker   string
	started  time.Time
	response *repb.ExecuteResponse
	timer    timer.Timer
	element  fifo.Anchor
}

// orphanResults are those that are kept, at most Config.MaxCompleted.
type orphanResults struct {
	*timer.Clock
	cfg *Config
	// byAction has the latest of each action last, order the oldest of all first.
	byAction map[action][]*orphanResult
	order    fifo.List[*orphanResult]
}

func newOrphanResults(c *timer.Clock, cfg *Config) *orphanResults {
	return &orphanResults{Clock: c, cfg: cfg, byAction: map[action][]*orphanResult{}}
}

// add keeps a worker's result. Errors are not kept, nor is a failure on a small size class, which is
// final on the largest only: the client that comes has its action run again.
func (rs *orphanResults) add(w *worker, a action, response *repb.ExecuteResponse) {
	largest := w.pool.largest((*queue).served)
	small := largest != nil && w.queue.class < largest.class
	if rs.cfg.Apart || response.GetStatus().GetCode() != 0 || small && response.GetResult().GetExitCode() != 0 {
		return
	}
	r := &orphanResult{action: a, pool: w.pool, worker: w.key, started: rs.Now, response: response}
	r.timer.Owner = r
	r.element = rs.order.PushBack(r)
	rs.byAction[a] = append(rs.byAction[a], r)
	rs.Timers.Set(&r.timer, rs.Now.Add(rs.cfg.ClientGrace))
	if rs.order.Len() > rs.cfg.MaxCompleted {
		oldest, _ := rs.order.Front()
		rs.remove(oldest)
	}
}

func (rs *orphanResults) remove(r *orphanResult) {
	rs.Timers.Stop(&r.timer)
	rs.order.Remove(r.element)
	left := slices.DeleteFunc(rs.byAction[r.action], func(x *orphanResult) bool { return x == r })
	if len(left) > 0 {
		rs.byAction[r.action] = left
	} else {
		delete(rs.byAction, r.action)
	}
}

// find returns the latest result that is there for an operation, or nil.
func (rs *orphanResults) find(spec *request.Operation, a action) *orphanResult {
	for _, r := range slices.Backward(rs.byAction[a]) {
		if r.pool.Serves(spec) {
			return r
		}
	}
	return nil
}
