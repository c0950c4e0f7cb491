package finished

import (
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
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
	list  fifo.Ring[ended] // guarded by mu, as bytes is
	bytes int64            // of those in list, and of those taken whose records are not made
}

func newQueue(most int64) *queue { return &queue{many: make(chan struct{}, 1), most: most} }

// add reports whether there was room.
func (q *queue) add(e ended) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.list.Len() == maxWaiting || q.bytes+e.bytes > q.most {
		return false
	}
	q.bytes += e.bytes
	q.list.PushBack(e)
	if q.list.Len()%many == 0 {
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
	batch = batch[:0]
	for range min(maxBatch, q.list.Len()) {
		batch = append(batch, q.list.PopFront())
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
	return q.list.Len()
}
