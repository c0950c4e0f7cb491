package finished

import (
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

const (
	// every is how often records are made, and many how many queued operations do not wait for that.
	every, many = 100 * time.Millisecond, 256
	// maxBatch is how many operations one maker takes.
	maxBatch = 64
)

// An ended is an operation that waits for its record.
type ended struct {
	event.Status
	note  string // additional text for the client
	bytes int64
}

// A queue has the operations that wait for their records. A goroutine that is woken for each costs
// dispatch more than the record does, so they are taken in batches.
type queue struct {
	// many has a value when there are many.
	many chan struct{}
	most int64 // bytes

	mu    sync.Mutex
	list  []ended // from first on; guarded by mu, as the others are
	first int
	bytes int64 // of those in list, and of those taken whose records are not made
}

func newQueue(most int64) *queue { return &queue{many: make(chan struct{}, 1), most: most} }

// add reports whether there was room.
func (q *queue) add(e ended) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.list) - q.first
	if n == maxWaiting || q.bytes+e.bytes > q.most {
		return false
	}
	if len(q.list) == cap(q.list) && q.first > n {
		copy(q.list, q.list[q.first:])
		clear(q.list[n:])
		q.list, q.first = q.list[:n], 0
	}
	q.bytes += e.bytes
	q.list = append(q.list, e)
	if (n+1)%many == 0 {
		select {
		case q.many <- struct{}{}:
		default:
		}
	}
	return true
}

// take moves the next operations to batch, which it returns; it is empty if there are none.
func (q *queue) take(batch []ended) []ended {
	q.mu.Lock()
	defer q.mu.Unlock()
	next := q.list[q.first:min(q.first+maxBatch, len(q.list))]
	batch = append(batch[:0], next...)
	clear(next)
	if q.first += len(next); q.first == len(q.list) {
		q.list, q.first = q.list[:0], 0
	}
	return batch
}

// made frees the memory of an operation that was taken.
func (q *queue) made(e *ended) {
	q.mu.Lock()
	q.bytes -= e.bytes
	q.mu.Unlock()
}

// length is how many wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.list) - q.first
}
