package prefetch

import (
	"context"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A file is a file of the input root that is likely to be read.
type file struct {
	digest digest.Digest
	hash   PathHash
}

// The lines of a queue.
const (
	small = iota
	large
)

// A queue holds files that no call has asked for yet, in their order.
type queue struct {
	wake [2]chan struct{} // one place each; for the two senders

	mu     sync.Mutex
	files  [2][]file // guarded by mu; small and large
	going  int       // guarded by mu; small batches that wait for the Limits
	closed bool      // guarded by mu; no more will come
}

func (q *queue) rouse() {
	for _, wake := range q.wake {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

func (q *queue) add(files []file) {
	q.mu.Lock()
	for _, f := range files {
		line := small
		if f.digest.SizeBytes() > largeBytes {
			line = large
		}
		q.files[line] = append(q.files[line], f)
	}
	q.mu.Unlock()
	q.rouse()
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.rouse()
}

// take returns what the next call asks for; nothing now, or never again. Large
// files go when all small ones have gone. After a batch the caller calls sent.
func (q *queue) take(line int) (batch []file, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	files := q.files[line]
	if line == large && len(q.files[small])+q.going > 0 {
		return nil, false
	}
	n, left := 0, int64(bytesPerCall)
	for n < len(files) && n < filesPerCall {
		left -= files[n].digest.SizeBytes()
		if n > 0 && left < 0 {
			break
		}
		n++
	}
	q.files[line] = files[n:]
	if n > 0 && line == small {
		q.going++
	}
	return files[:n:n], n == 0 && q.closed
}

// sent says that a batch has got its place among all calls of the worker.
func (q *queue) sent(line int) {
	if line == large {
		return
	}
	q.mu.Lock()
	q.going--
	q.mu.Unlock()
	q.rouse()
}

// drop forgets what waits.
func (q *queue) drop() {
	q.mu.Lock()
	q.files = [2][]file{}
	q.mu.Unlock()
	q.rouse()
}

// add takes files that are likely to be read; it does not keep the slice.
func (r *Race) add(files []file) {
	if len(files) == 0 {
		return
	}
	r.mu.Lock()
	files = files[:min(len(files), maxFiles-len(r.foreseen))]
	r.foreseen = append(r.foreseen, files...)
	for _, f := range files {
		r.stats.Foreseen.add(f.digest)
	}
	r.mu.Unlock()
	r.queue.add(files)
}

// send has one line of the queue fetched, with so many calls at a time, until it is
// empty and closed, or ctx ends.
func (r *Race) send(ctx context.Context, line, calls int) {
	slots := make(chan struct{}, calls)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		batch, ended := r.queue.take(line)
		for len(batch) == 0 && !ended {
			select {
			case <-r.queue.wake[line]:
			case <-ctx.Done():
				return
			}
			batch, ended = r.queue.take(line)
		}
		if ended {
			return
		}
		var bytes int64
		for _, f := range batch {
			bytes += f.digest.SizeBytes()
		}
		release, err := r.limits.files(ctx, bytes)
		r.queue.sent(line)
		if err != nil {
			return
		}
		r.running.Go(func() {
			r.fetch(ctx, batch)
			release()
			<-slots
		})
	}
}

// fetch makes one call for files.
func (r *Race) fetch(ctx context.Context, batch []file) {
	ds := make([]digest.Digest, len(batch))
	for i, f := range batch {
		ds[i] = f.digest
	}
	// What did not come is for those to complain about who need it.
	brought, _ := r.source.Prefetch(ctx, ds)
	r.mu.Lock()
	r.fetched = append(r.fetched, brought...)
	for _, d := range brought {
		r.stats.Files.add(d)
	}
	r.mu.Unlock()
	if r.nearby != nil {
		r.nearby.ended(batch, brought)
	}
}
