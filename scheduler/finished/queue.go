package finished

import (
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
)

const (
	// every is how often commands are read, and many how many drafts do not wait for that.
	every, many = 100 * time.Millisecond, 256
	// maxBatch is how many drafts one reader takes.
	maxBatch = 64
)

// An unread is a draft whose command must be read from the storage.
type unread struct {
	draft    *draft
	instance string
	command  digest.Digest
	bytes    int64 // approximate memory
}

// A queue has the drafts that wait for their commands. A goroutine that is woken for each costs
// dispatch more than the record does, so they are taken in batches.
type queue struct {
	// many has a value when there are many.
	many chan struct{}
	most int64 // bytes

	mu    sync.Mutex
	list  fifo.Ring[unread] // guarded by mu, as bytes is
	bytes int64             // of those in list, and of those taken whose commands are not read
}

func newQueue(most int64) *queue { return &queue{many: make(chan struct{}, 1), most: most} }

// add reports whether there was room; there is less for a usual end.
func (q *queue) add(u unread) bool {
	most := maxWaiting
	u.bytes = int64(cap(u.draft.wire.b)) + draftBytes
	if u.draft.isUsual() {
		most /= usualParts
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.list.Len() >= most || q.bytes+u.bytes > q.most {
		return false
	}
	q.bytes += u.bytes
	q.list.PushBack(u)
	if q.list.Len()%many == 0 {
		select {
		case q.many <- struct{}{}:
		default:
		}
	}
	return true
}

// take moves the next drafts to batch, which it returns; it is empty if there are none.
func (q *queue) take(batch []unread) []unread {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch = batch[:0]
	for range min(maxBatch, q.list.Len()) {
		batch = append(batch, q.list.PopFront())
	}
	return batch
}

// taken frees the memory of a draft whose command was read.
func (q *queue) taken(u *unread) {
	q.mu.Lock()
	q.bytes -= u.bytes
	q.mu.Unlock()
}
