package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
)

// A pool is all workers of one instance name prefix and platform. It exists
// while it has workers, or for good if size classes of it are declared.
type pool struct {
	prefix   string
	platform Platform
	// tree says what is next, for each size class; levels are what it is made of.
	tree   *fair.Tree
	levels []Level
	// keys is for those of one operation at a time.
	keys []string
	// queues are sorted by size class, smallest first.
	queues []*queue
	// startup and patience are those of its declared size classes.
	startup, patience time.Duration
	// cohort shares the workers by quotas; nil: there are none.
	cohort *cohort
}

type poolKey struct{ prefix, platform string }

func (p *pool) key() poolKey { return poolKey{p.prefix, p.platform.Key()} }

// queue returns the pool's queue for a size class, made if need be.
func (p *pool) queue(class uint32) *queue {
	i, found := slices.BinarySearchFunc(p.queues, class, func(q *queue, c uint32) int {
		return cmp.Compare(q.class, c)
	})
	if !found {
		q := &queue{pool: p, class: class, name: p.queueName(class)}
		q.rest.owner = q
		p.queues = slices.Insert(p.queues, i, q)
	}
	return p.queues[i]
}

// A QueueName names a queue for people: two platforms may read alike.
type QueueName struct {
	Prefix, Platform, Cohort string
	SizeClass                uint32
}

func (p *pool) queueName(class uint32) *QueueName {
	n := &QueueName{Prefix: p.prefix, Platform: p.platform.String(), SizeClass: class}
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

// hasWorkers reports whether a worker of the pool is known, whatever it takes.
func (p *pool) hasWorkers() bool {
	return slices.ContainsFunc(p.queues, func(q *queue) bool { return q.workers > 0 })
}

// smallest returns the queue of the smallest size class that fits, from class on.
func (p *pool) smallest(class uint32, fits func(*queue) bool) *queue {
	for _, q := range p.queues {
		if q.class >= class && fits(q) {
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

// serves reports whether the pool's workers may run an action.
func (p *pool) serves(spec *Operation) bool {
	return p.platform.Key() == spec.Platform.Key() && instance.Below(spec.Instance, p.prefix)
}

func (p *pool) leaveCohort() {
	if c := p.cohort; c != nil {
		c.pools = slices.DeleteFunc(c.pools, func(x *pool) bool { return x == p })
	}
}
