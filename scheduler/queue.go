package scheduler

import (
	"cmp"
	"container/list"
	"slices"
)

// A fifo holds values in order and gives each an anchor to remove it by.
type fifo[T any] struct{ l list.List }

func (f *fifo[T]) pushBack(v T) *list.Element  { return f.l.PushBack(v) }
func (f *fifo[T]) pushFront(v T) *list.Element { return f.l.PushFront(v) }
func (f *fifo[T]) remove(e *list.Element)      { f.l.Remove(e) }
func (f *fifo[T]) len() int                    { return f.l.Len() }

// front returns the first value; false if there is none.
func (f *fifo[T]) front() (v T, ok bool) {
	e := f.l.Front()
	if e == nil {
		return v, false
	}
	return e.Value.(T), true
}

// all returns the values in order.
func (f *fifo[T]) all() []T {
	vs := make([]T, 0, f.l.Len())
	for e := f.l.Front(); e != nil; e = e.Next() {
		vs = append(vs, e.Value.(T))
	}
	return vs
}

// A pool is all workers of one instance name prefix and platform. It exists
// while it has workers.
type pool struct {
	prefix   string
	platform Platform
	// queues are sorted by size class, smallest first.
	queues []*queue
}

type poolKey struct{ prefix, platform string }

func (p *pool) key() poolKey { return poolKey{p.prefix, p.platform.Key()} }

// queue returns the pool's queue for a size class, made if need be.
func (p *pool) queue(class uint32) *queue {
	i, found := slices.BinarySearchFunc(p.queues, class, func(q *queue, c uint32) int {
		return cmp.Compare(q.class, c)
	})
	if !found {
		p.queues = slices.Insert(p.queues, i, &queue{pool: p, class: class})
	}
	return p.queues[i]
}

// largest returns the queue of the largest size class that has a worker that
// takes work; nil if there is none.
func (p *pool) largest() *queue {
	for _, q := range slices.Backward(p.queues) {
		if q.serving > 0 {
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

// A queue is what one size class of a pool has to do and who is free to do it.
// Invariants between events: tasks or idle is empty; tasks is empty unless serving > 0.
type queue struct {
	pool  *pool
	class uint32
	tasks fifo[*task]
	// idle are the workers whose call is held, the longest waiting first.
	idle fifo[*worker]
	// workers counts all workers; serving those that want work.
	workers, serving int
}
