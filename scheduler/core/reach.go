package core

import (
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// A reach is the pools where else something of a queue may run: those of the same instance name prefix that fit one of the platforms that
// it is asked for. There may be some more, of platforms that nothing in the queue asks for any more.
type reach struct {
	// pools are in the order of their offers.
	pools []*pool
	// known is offer.Index.Changes for which that holds, one more: 0 is never.
	known int
	// roams: the queue is in reaches.roaming.
	roams bool
}

// reaches look after those of all queues.
type reaches struct {
	// known is as in reach; stale are the queues with tasks that are to be looked at since then.
	known int
	stale []*queue
	// roaming are the queues in which something waits that may run elsewhere, and some in which nothing does any more.
	roaming []*queue
	// marked are those to be asked whether anything is to go elsewhere.
	marked []*queue
}

// mostAsked bounds the platforms that are looked at one by one to find a queue's reach.
const mostAsked = 100

// mark has a queue be asked whether anything is to go elsewhere.
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

// survey finds the reach of a queue anew.
func (d *dispatcher) survey(q *queue) {
	q.reach.pools, q.reach.known = nil, d.pools.Changes()+1
	if len(q.asked) > mostAsked {
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
		if !d.effort.spend(endEffort + len(q.asked) + d.pools.Len()/4) {
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
