package records

import (
	"context"
	"errors"
	"sync"
	"time"
)

// The bounds of a queue.
const (
	// maxQueued limits the bytes that wait for a commit. As many again may be in a commit.
	maxQueued = 16 << 20
	// maxUses limits the times of last use that wait for a commit. Further ones are lost, so that
	// these records may be evicted too early.
	maxUses = 1 << 16
)

// A queue holds uncommitted writes of a Bolt.
type queue struct {
	// begun has a token when there is a batch to commit, urgent when it must be committed at once.
	begun, urgent chan struct{}

	mu         sync.Mutex
	waiting    *batch // receives new writes
	committing *batch // is being committed; nil if there is none
	// uses has the times of last use that are not committed yet; lastStamp is the latest one.
	uses      map[Key]int64
	lastStamp int64
	// failure is the error of a commit that no caller has received yet.
	failure error
	closed  bool
}

// A batch is the content of one commit.
type batch struct {
	writes map[Key]*write
	bytes  int64
	taken  chan struct{} // closed when the commit begins
	done   chan struct{} // closed when the batch is committed or lost
	err    error         // why the batch was lost; set before done is closed
}

// A write is the sealed new value of a record. It never changes after it is queued.
type write struct {
	stored []byte
	stamp  int64 // its time of last use
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

// look returns the queued write of k; nil if there is none.
func (q *queue) look(k Key) (w *write, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w = q.waiting.writes[k]
	if w == nil && q.committing != nil {
		w = q.committing.writes[k]
	}
	return w, q.closed
}

// used records that k is used now.
func (q *queue) used(k Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.uses[k]; ok || len(q.uses) < maxUses {
		q.uses[k] = q.stampLocked()
	}
}

// stampLocked returns the time in nanoseconds since 1970, later than all times that it returned
// before.
func (q *queue) stampLocked() int64 {
	q.lastStamp = max(q.lastStamp+1, time.Now().UnixNano())
	return q.lastStamp
}

// startAfter makes all further stamps later than stamp.
func (q *queue) startAfter(stamp int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lastStamp = max(q.lastStamp, stamp)
}

// put queues w for k. It waits until there is room.
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

// tryPut does the work of put. If there is no room, it returns a channel that closes when there may
// be.
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

// take returns the waiting batch, and marks it as being committed.
func (q *queue) take() *batch {
	q.mu.Lock()
	b := q.waiting
	q.committing, q.waiting = b, newBatch()
	q.mu.Unlock()
	close(b.taken)
	return b
}

// takeUses returns the times of last use that are not committed yet.
func (q *queue) takeUses() map[Key]int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	uses := q.uses
	q.uses = map[Key]int64{}
	return uses
}

// committed ends the commit of a batch. err is nil, or says why the batch was lost.
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

// flush waits until everything in the queue is committed.
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

// takeFailure returns the error that no caller has received yet.
func (q *queue) takeFailure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	failure := q.failure
	q.failure = nil
	return failure
}

// close stops the queue from accepting writes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// signal puts a token into a channel, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
