package prefetch

import (
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A file is a file of the input root that is likely to be read.
type file struct {
	digest digest.Digest
	hash   PathHash
}

// A line is a part of a queue; an earlier one goes first.
type line int

const (
	near  line = iota // next to what the action has opened
	small             // foreseen by the profile
	large             // foreseen, and above largeBytes
	lines
)

// A sender empties lines of a queue.
type sender int

const (
	forSmall sender = iota // near and small
	forLarge
	senders
)

// A profile is believed up to a point: of what it foresees, so many bytes are asked for before any
// of it is read, and for each byte that is read so many more.
const (
	exactCredit  = 16 << 20
	coarseCredit = 4 << 20
	creditOfRead = 8
)

// A queue holds files that no call has asked for yet, in their order.
type queue struct {
	wake [senders]chan struct{} // one place each

	mu    sync.Mutex
	files [lines][]file      // guarded by mu
	known map[PathHash]int64 // guarded by mu; what the profile foresees and was not read, and its bytes
	// credit is what may yet be asked for on the word of the profile, in bytes; the last file
	// may exceed it. Guarded by mu.
	credit int64
	held   bool // guarded by mu; the profile is not believed now
	going  int  // guarded by mu; batches for forSmall that wait for the Limits
}

func newQueue(o Origin) *queue {
	q := &queue{known: map[PathHash]int64{}, credit: exactCredit}
	if o == Coarse {
		q.credit = coarseCredit
	}
	for i := range q.wake {
		q.wake[i] = make(chan struct{}, 1)
	}
	return q
}

func (q *queue) rouse() {
	for _, wake := range q.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// foresee adds files that the profile foresees.
func (q *queue) foresee(files []file) {
	q.mu.Lock()
	for _, f := range files {
		l := small
		if f.digest.SizeBytes() > largeBytes {
			l = large
		}
		q.files[l] = append(q.files[l], f)
		q.known[f.hash] = f.digest.SizeBytes()
	}
	q.mu.Unlock()
	q.rouse()
}

// unforeseen returns those files that the profile does not foresee.
func (q *queue) unforeseen(files []file) (others []file) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range files {
		if _, ok := q.known[f.hash]; !ok {
			others = append(others, f)
		}
	}
	return others
}

// near adds files that are next to what the action has opened.
func (q *queue) near(files []file) {
	q.mu.Lock()
	q.files[near] = append(q.files[near], files...)
	q.mu.Unlock()
	q.rouse()
}

// read notes that the action reads a file that the profile foresaw, which lets more be asked for.
func (q *queue) read(h PathHash) {
	q.mu.Lock()
	size, ok := q.known[h]
	delete(q.known, h)
	was := q.credit
	q.credit += creditOfRead * size
	more := was <= 0 && q.credit > 0
	q.mu.Unlock()
	if ok && more {
		q.rouse()
	}
}

// hold says whether the profile is not to be believed for now.
func (q *queue) hold(held bool) {
	q.mu.Lock()
	changed := q.held != held
	q.held = held
	q.mu.Unlock()
	if changed {
		q.rouse()
	}
}

// take returns what the next call asks for; nothing if there is nothing now. Large files go when
// all small ones have gone. After a batch the caller calls sent.
func (q *queue) take(s sender) []file {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s == forLarge {
		if len(q.files[near])+len(q.files[small])+q.going > 0 {
			return nil
		}
		return q.takeLocked(large)
	}
	batch := q.takeLocked(near)
	if len(batch) == 0 {
		batch = q.takeLocked(small)
	}
	if len(batch) > 0 {
		q.going++
	}
	return batch
}

func (q *queue) takeLocked(l line) []file {
	if l != near && (q.held || q.credit <= 0) {
		return nil
	}
	files := q.files[l]
	n, left := 0, int64(bytesPerCall)
	for n < len(files) && n < filesPerCall {
		size := files[n].digest.SizeBytes()
		if left -= size; n > 0 && left < 0 {
			break
		}
		if n++; l == near {
			continue
		}
		if q.credit -= size; q.credit <= 0 {
			break
		}
	}
	q.files[l] = files[n:]
	return files[:n:n]
}

// sent says that a batch has got its place among all calls of the worker.
func (q *queue) sent(s sender) {
	if s == forLarge {
		return
	}
	q.mu.Lock()
	q.going--
	q.mu.Unlock()
	q.rouse()
}

// dropNear forgets what waits because of what is near it.
func (q *queue) dropNear() {
	q.mu.Lock()
	q.files[near] = nil
	q.mu.Unlock()
	q.rouse()
}
