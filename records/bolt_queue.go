package records

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The named bounds of a queue.
const (
	// maxQueued bounds the bytes that wait for a commit; as many again may be in one.
	maxQueued = 16 << 20
	// maxUses bounds the times of last use that wait for a commit. More are forgotten, so that
	// those records may be evicted too early.
	maxUses = 1 << 16
)

// A queue holds uncommitted writes of a Bolt.
type queue struct {
	// begun has a token when there is a batch to commit, urgent when there is no time to lose.
	begun, urgent chan struct{}

	mu         sync.Mutex
	waiting    *batch // takes new writes
	committing *batch // is being committed; nil if none is
	// uses are the times of last use that are not in a commit yet, lastStamp the last one given.
	uses      map[Key]int64
	lastStamp int64
	// failure is the error of a commit that has not been returned to anybody.
	failure error
	closed  bool
}

// A batch is the content of one commit.
type batch struct {
	writes map[Key]*write
	bytes  int64
	taken  chan struct{} // closed when its commit begins
	done   chan struct{} // closed when it has been committed, or lost
	err    error         // why it was lost; set before done is closed
}

// A write is a new value of a record, sealed. It does not change once queued.
type write struct {
	stored []byte
	stamp  int64 // when, as a time of last use
}

func newQueue() *queue {
	return &queue{
		begun:   make(chan struct{}, 1),
		urgent:  make(chan struct{}, 1),
		waiting: newBatch(),
		uses:    map[Key]int64{},
	}
}

func newBatch() *batch {
	return &batch{writes: map[Key]*write{}, taken: make(chan struct{}), done: make(chan struct{})}
}

// look returns the queued write of k, nil for none.
func (q *queue) look(k Key) (w *write, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w = q.waiting.writes[k]
	if w == nil && q.committing != nil {
		w = q.committing.writes[k]
	}
	return w, q.closed
}

// used takes down that k is used now.
func (q *queue) used(k Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.uses[k]; ok || len(q.uses) < maxUses {
		q.uses[k] = q.stampLocked()
	}
}

// stampLocked returns the time in nanoseconds since 1970, and later than any before it.
func (q *queue) stampLocked() int64 {
	q.lastStamp = max(q.lastStamp+1, time.Now().UnixNano())
	return q.lastStamp
}

// startAfter makes all stamps later than stamp.
func (q *queue) startAfter(stamp int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lastStamp = max(q.lastStamp, stamp)
}

// put queues w for k. While there is no room it waits.
func (q *queue) put(ctx context.Context, k Key, w *write) error {
	for {
		taken, err := q.tryPut(k, w)
		signal(q.begun)
		if taken == nil {
			return err
		}
		signal(q.urgent)
		select {
		case <-taken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryPut does the work of put. If there is no room it returns a channel to wait for.
func (q *queue) tryPut(k Key, w *write) (<-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	bytes := q.waiting.bytes + recordBytes(k, len(w.stored))
	if before := q.waiting.writes[k]; before != nil {
		bytes -= recordBytes(k, len(before.stored))
	}
	if bytes > maxQueued && bytes > q.waiting.bytes {
		return q.waiting.taken, nil
	}
	w.stamp = q.stampLocked()
	q.waiting.writes[k] = w
	q.waiting.bytes = bytes
	return nil, nil
}

// take makes the waiting batch the one that is being committed, and returns it.
func (q *queue) take() *batch {
	q.mu.Lock()
	b := q.waiting
	q.committing, q.waiting = b, newBatch()
	q.mu.Unlock()
	close(b.taken)
	return b
}

// takeUses returns the times of last use that are not in a commit yet.
func (q *queue) takeUses() map[Key]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	uses := q.uses
	q.uses = map[Key]int64{}
	return uses
}

// committed ends the commit of a batch; err says why it was lost, or is nil.
func (q *queue) committed(err error) {
	q.mu.Lock()
	b := q.committing
	q.committing = nil
	if err != nil && q.failure == nil {
		q.failure = err
	}
	q.mu.Unlock()
	b.err = err
	close(b.done)
}

// flush waits for all that is queued to be committed.
func (q *queue) flush(ctx context.Context) error {
	q.mu.Lock()
	waitFor := []*batch{q.waiting}
	if q.committing != nil {
		waitFor = append(waitFor, q.committing)
	}
	closed, empty := q.closed, len(q.waiting.writes) == 0
	q.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if empty {
		waitFor = waitFor[1:]
	} else {
		signal(q.begun)
		signal(q.urgent)
	}
	var lost []error
	for _, b := range waitFor {
		select {
		case <-b.done:
			lost = append(lost, b.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	failure := q.takeFailure()
	if err := errors.Join(lost...); err != nil {
		return err
	}
	return failure
}

// takeFailure returns the error that was not returned yet.
func (q *queue) takeFailure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	failure := q.failure
	q.failure = nil
	return failure
}

// close lets no more be queued.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// signal puts a token into a channel that holds one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
