package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A pool is all workers of one instance name prefix and platform. It exists
// while it has workers, or for good if size classes of it are declared.
type pool struct {
	offer.Offer
	// terms are the pool's part of the configuration.
	terms tuning.Terms
	// tree decides what is next, for each size class; levels are its configuration.
	tree   *fair.Tree
	levels []levels.Level
	// keys is scratch space for the keys of one operation at a time.
	keys []string
	// queues are sorted by size class, smallest first.
	queues []*queue
	// startup and patience are from its declared size classes.
	startup, patience time.Duration
	// cohort shares the workers by quotas; nil: there are none.
	cohort *cohort
	// touched: the current event has changed its queues or idle workers; see reaches.
	touched bool
	// idling is pools.idling.
	idling *int
}

// Offered implements offer.Pool.
func (p *pool) Offered() offer.Offer { return p.Offer }

// queue returns the pool's queue for a size class, made if need be.
func (p *pool) queue(class uint32) *queue {
	i, found := slices.BinarySearchFunc(p.queues, class, func(q *queue, c uint32) int {
		return cmp.Compare(q.class, c)
	})
	if !found {
		q := &queue{pool: p, class: class, name: p.queueName(class)}
		q.rest.Owner, q.overflow, q.unwanted.queue = q, overflow{queue: q}, q
		q.unwanted.timer.Owner = &q.unwanted
		q.overflow.timer.Owner = &q.overflow
		q.line.Owner, q.absence.queue, q.absence.timer.Owner = q, q, &q.absence
		if p.cohort != nil {
			q.quotas = p.cohort.Queue(class, q)
		}
		p.queues = slices.Insert(p.queues, i, q)
	}
	return p.queues[i]
}

// classOf returns the size class of a worker that reports one. 0, for workers without classes, and
// 1 are the same: both become the one that the pool already has.
func (p *pool) classOf(says uint32) uint32 {
	has := func(class uint32) bool {
		return slices.ContainsFunc(p.queues, func(q *queue) bool { return q.class == class })
	}
	if says <= 1 && !has(says) && has(1-says) {
		return 1 - says
	}
	return says
}

func (p *pool) queueName(class uint32) *event.QueueName {
	n := &event.QueueName{Prefix: p.Prefix, Platform: p.Platform.String(), SizeClass: class}
	if p.cohort != nil {
		n.Cohort = p.cohort.Name
	}
	return n
}

// largest returns the queue of the largest size class that fits; nil if none does.
func (p *pool) largest(fits func(*queue) bool) *queue {
	for _, q := range slices.Backward(p.queues) {
		if fits(q) {
			return q
		}
	}
	return nil
}

// serving counts the workers that take work.
func (p *pool) serving() int {
	n := 0
	for _, q := range p.queues {
		n += q.serving
	}
	return n
}

// hasWorkers reports whether the pool has a worker, even one that takes no work.
func (p *pool) hasWorkers() bool {
	return slices.ContainsFunc(p.queues, func(q *queue) bool { return q.workers > 0 })
}

// hasDeclared reports whether a size class of the pool is declared.
func (p *pool) hasDeclared() bool {
	return slices.ContainsFunc(p.queues, func(q *queue) bool { return q.declared })
}

// hasFor reports whether a size class has workers that take work.
func (p *pool) hasFor(class uint32) bool {
	return slices.ContainsFunc(p.queues, func(q *queue) bool { return q.size() == class && q.served() })
}

// smallest returns the queue of the smallest size class that fits, from class on.
func (p *pool) smallest(class uint32, fits func(*queue) bool) *queue {
	for _, q := range p.queues {
		if q.size() >= class && fits(q) {
			return q
		}
	}
	return nil
}

// suited returns the queue for a size class, 0 being the largest; nil if none fits.
func (p *pool) suited(class uint32, fits func(*queue) bool) *queue {
	if class > 0 {
		if q := p.smallest(class, fits); q != nil {
			return q
		}
	}
	return p.largest(fits)
}

func (p *pool) leaveCohort() {
	if c := p.cohort; c != nil {
		c.pools = slices.DeleteFunc(c.pools, func(x *pool) bool { return x == p })
	}
}

// mayTake reports whether a pool fits some tasks of another pool's queue.
func (p *pool) mayTake(q *queue) bool {
	if !p.Meets(q.pool.Offer) {
		return false
	}
	for _, a := range q.asked {
		if p.Fits(a.platform) {
			return true
		}
	}
	return false
}
