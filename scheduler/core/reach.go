package core

import (
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// reaches look after those of all queues.
type reaches struct {
	pools  *pools
	effort *sweep.Effort
	// known is as in reach. stale are the queues with tasks whose reach was found before that.
	known int
	stale []*queue
	// roaming has all queues with tasks that may run elsewhere; others drops the rest.
	roaming []*queue
	// touched are the pools whose queues or idle workers the current event has changed; marked are
	// the queues with tasks that may have to move now.
	touched []*pool
	marked  []*queue
}

// touch records that an event has changed a pool's queues or idle workers, if there are other pools
// to move to.
func (r *reaches) touch(p *pool) {
	if !p.touched && (len(p.queues) > 1 || r.pools.Len() > 1) {
		p.touched = true
		r.touched = append(r.touched, p)
	}
}

// untouch removes the first one from the touched pools.
func (r *reaches) untouch() {
	r.touched[0].touched = false
	r.touched[0] = nil
	if r.touched = r.touched[1:]; len(r.touched) == 0 {
		r.touched = nil
	}
}

// compares is how many comparisons of a platform with a pool count as a look at a task.
const compares = 4

// mark makes overflows check whether tasks of a queue must move.
func (r *reaches) mark(q *queue) {
	if !q.overflow.marked {
		q.overflow.marked = true
		r.marked = append(r.marked, q)
	}
}

func (r *reaches) isBehind() bool { return len(r.touched) > 0 || len(r.marked) > 0 || len(r.stale) > 0 }

// others yields the roaming queues of other pools that reach one, and drops those that roam no
// more.
func (r *reaches) others(p *pool, yield func(*queue)) {
	r.roaming = slices.DeleteFunc(r.roaming, func(q *queue) bool {
		q.reach.roams = q.waiting > 0 && len(q.reach.pools) > 0
		return !q.reach.roams
	})
	for _, q := range r.roaming {
		if q.pool != p && q.pool.Prefix == p.Prefix && q.reach.has(p) {
			yield(q)
		}
	}
}

// isCurrent reports whether the reach of a queue is that of the pools that there are.
func (r *reaches) isCurrent(q *queue) bool { return q.reach.known == r.pools.Changes()+1 }

// add has the reach of a queue be that for one more platform.
func (r *reaches) add(q *queue, asked request.Platform) {
	if len(q.asked) == 1 {
		q.reach.pools, q.reach.known = nil, r.pools.Changes()+1
	}
	if r.isCurrent(q) { // else it is stale
		r.extend(q, asked)
	}
}

// extend adds the pools that fit a platform.
func (r *reaches) extend(q *queue, asked request.Platform) {
	for p := range r.pools.Beside(q.pool.Prefix, asked) {
		if p == q.pool {
			continue
		}
		at, found := q.reach.find(p)
		if !found {
			q.reach.pools = slices.Insert(q.reach.pools, at, beside{pool: p})
		}
		there := &q.reach.pools[at]
		there.equals = there.equals || q.isAtHome(asked, p)
	}
}

// roam notes that something waits in a queue that may run elsewhere.
func (r *reaches) roam(q *queue) {
	if len(q.reach.pools) > 0 && !q.reach.roams {
		q.reach.roams = true
		r.roaming = append(r.roaming, q)
	}
}

// surveyCost is the effort of survey. If that exceeds the effort of an event, it takes all pools of
// the instance name prefix.
func (r *reaches) surveyCost(q *queue) (cost int, all bool) {
	if cost = endEffort + len(q.asked)*(1+r.pools.Len()/compares); cost > tuning.DefaultEffort {
		return endEffort + r.pools.Len(), true
	}
	return cost, false
}

// survey finds the reach of a queue again.
func (r *reaches) survey(q *queue) {
	q.reach.pools, q.reach.known = nil, r.pools.Changes()+1
	if _, all := r.surveyCost(q); all {
		for _, p := range r.pools.Sorted() {
			if p != q.pool && p.Prefix == q.pool.Prefix {
				q.reach.pools = append(q.reach.pools, beside{p, true})
			}
		}
	} else {
		for _, a := range q.asked {
			r.extend(q, a.platform)
		}
	}
	r.roam(q)
}

// refresh updates all reaches to the current pools. It returns false if the event has no effort
// left.
func (r *reaches) refresh() bool {
	if now := r.pools.Changes() + 1; r.known != now {
		r.effort.Spend(r.pools.Len())
		r.known, r.stale = now, nil
		for _, p := range r.pools.Sorted() {
			for _, q := range p.queues {
				if q.line.Len() > 0 && !r.isCurrent(q) {
					r.stale = append(r.stale, q)
				}
			}
		}
	}
	for len(r.stale) > 0 {
		q := r.stale[0]
		if cost, _ := r.surveyCost(q); !r.effort.Spend(cost) {
			return false
		}
		if !r.isCurrent(q) {
			r.survey(q)
			r.mark(q)
		}
		r.stale[0] = nil
		r.stale = r.stale[1:]
	}
	return true
}

// tellOthers has queues that are not in a cohort look again for workers of it.
func (r *reaches) tellOthers(c *cohort) {
	if r.pools.idling == 0 || r.pools.Len() == len(c.pools) {
		return
	}
	r.effort.Spend(len(r.roaming) / glances)
	for _, q := range r.roaming {
		if q.pool.cohort != c {
			r.mark(q)
		}
	}
}
