package core

import (
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// A reach is the pools where else something of a queue may run: those of the same instance name prefix
// that fit one of the platforms that it is asked for. There may be some more.
type reach struct {
	// pools are in the order of their offers.
	pools []*pool
	// known is one more than what offer.Index.Changes was when they were found; 0: they never were.
	known int
	// roams: the queue is in reaches.roaming.
	roams bool
}

// reaches look after those of all queues.
type reaches struct {
	// known is as in reach. stale are the queues with tasks whose reach was found before that.
	known int
	stale []*queue
	// roaming has all queues in which something waits that may run elsewhere; others drops the rest.
	roaming []*queue
	// marked are those of which something may have to go elsewhere now.
	marked []*queue
}

// compares is how many comparisons of a platform with a pool count as a look at a task.
const compares = 4

// mark has overflows see whether anything of a queue is to go elsewhere.
func (r *reaches) mark(q *queue) {
	if !q.overflow.marked {
		q.overflow.marked = true
		r.marked = append(r.marked, q)
	}
}

func (r *reaches) isBehind() bool { return len(r.marked) > 0 || len(r.stale) > 0 }

// others yields the roaming queues of other pools which reach one, and drops those that roam no more.
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

func (r *reach) find(p *pool) (at int, found bool) {
	return slices.BinarySearchFunc(r.pools, p, func(a, b *pool) int { return offer.Compare(a.Offer, b.Offer) })
}

func (r *reach) has(p *pool) bool {
	at, found := r.find(p)
	return found && r.pools[at] == p
}

// isCurrent reports whether the reach of a queue is that of the pools that there are.
func (d *dispatcher) isCurrent(q *queue) bool { return q.reach.known == d.pools.Changes()+1 }

// reachFor has the reach of a queue be that for one more platform.
func (d *dispatcher) reachFor(q *queue, asked request.Platform) {
	if len(q.asked) == 1 {
		q.reach.pools, q.reach.known = nil, d.pools.Changes()+1
	}
	if d.isCurrent(q) { // else it is stale
		d.extend(q, asked)
	}
}

// extend adds the pools that fit a platform.
func (d *dispatcher) extend(q *queue, asked request.Platform) {
	for p := range d.pools.Beside(q.pool.Prefix, asked) {
		if at, found := q.reach.find(p); !found && p != q.pool {
			q.reach.pools = slices.Insert(q.reach.pools, at, p)
		}
	}
}

// roam notes that something waits in a queue that may run elsewhere.
func (d *dispatcher) roam(q *queue) {
	if len(q.reach.pools) > 0 && !q.reach.roams {
		q.reach.roams = true
		d.reaches.roaming = append(d.reaches.roaming, q)
	}
}

// surveyCost is what survey counts for. Where that would be more than an event may do, it takes all pools
// of the instance name prefix.
func (d *dispatcher) surveyCost(q *queue) (cost int, all bool) {
	if cost = endEffort + len(q.asked)*(1+d.pools.Len()/compares); cost > defaultEffort {
		return endEffort + d.pools.Len(), true
	}
	return cost, false
}

// survey finds the reach of a queue anew.
func (d *dispatcher) survey(q *queue) {
	q.reach.pools, q.reach.known = nil, d.pools.Changes()+1
	if _, all := d.surveyCost(q); all {
		for _, p := range d.pools.Sorted() {
			if p != q.pool && p.Prefix == q.pool.Prefix {
				q.reach.pools = append(q.reach.pools, p)
			}
		}
	} else {
		for _, a := range q.asked {
			d.extend(q, a.platform)
		}
	}
	d.roam(q)
}

// refresh has all reaches be those of the pools that there are; false: the event may do no more.
func (d *dispatcher) refresh() bool {
	r := &d.reaches
	if now := d.pools.Changes() + 1; r.known != now {
		d.effort.spend(d.pools.Len())
		r.known, r.stale = now, nil
		for _, p := range d.pools.Sorted() {
			for _, q := range p.queues {
				if q.line.count > 0 && !d.isCurrent(q) {
					r.stale = append(r.stale, q)
				}
			}
		}
	}
	for len(r.stale) > 0 {
		q := r.stale[0]
		if cost, _ := d.surveyCost(q); !d.effort.spend(cost) {
			return false
		}
		if !d.isCurrent(q) {
			d.survey(q)
			r.mark(q)
		}
		r.stale[0] = nil
		r.stale = r.stale[1:]
	}
	return true
}
