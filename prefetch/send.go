package prefetch

import (
	"context"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// foresee takes files that the profile foresees; it does not keep the slice.
func (r *Race) foresee(files []file) {
	if files = r.count(files); len(files) > 0 {
		r.queue.foresee(files)
	}
}

// near takes neighbours of opened files. Those that the profile predicts, too, go ahead of its
// other files.
func (r *Race) near(files []file, doubt int64) {
	if len(files) > 0 {
		r.count(r.queue.unforeseen(files))
	}
	r.queue.near(files, doubt)
}

// mentioned takes files that others mention. So many of their bytes are in doubt now.
func (r *Race) mentioned(files []file, doubt int64) {
	if len(files) > 0 {
		r.count(r.queue.unforeseen(files))
	}
	r.queue.mention(files, doubt)
}

// count counts predicted files, and returns as many as the limit allows.
func (r *Race) count(files []file) []file {
	r.mu.Lock()
	defer r.mu.Unlock()
	files = files[:min(len(files), maxFiles-int(r.stats.Foreseen.Files))]
	for _, f := range files {
		r.stats.Foreseen.add(f.digest)
	}
	return files
}

// send has the files of the queue fetched until ctx ends.
func (r *Race) send(ctx context.Context) {
	for {
		for !r.queue.ready() {
			select {
			case <-r.queue.wake:
			case <-ctx.Done():
				return
			}
		}
		// The choice is made only then: a file that is read sooner may have been added.
		if r.limits.call(ctx) != nil {
			return
		}
		batch, parts := r.queue.take()
		switch {
		case parts != nil:
			release := r.source.PrefetchRanges(ctx, batch[0].digest, parts)
			r.mu.Lock()
			r.parts = append(r.parts, release)
			r.mu.Unlock()
			r.limits.ended()
		case len(batch) == 0:
			r.limits.ended()
		case batch[0].class.way.isLarge():
			r.sendLarge(ctx, batch)
		default:
			r.running.Go(func() {
				r.fetch(ctx, batch)
				r.limits.ended()
				r.queue.ended(batch, false)
			})
		}
	}
}

// sendLarge makes the call in its argument for a large file, for which there must be free bytes, too.
// Nothing else waits for that: meanwhile it does not count as a call.
func (r *Race) sendLarge(ctx context.Context, batch []file) {
	bytes := batch[0].digest.SizeBytes()
	call, cancel := context.WithCancel(ctx)
	reserved := r.limits.tryReserve(bytes)
	if reserved {
		r.queue.begun(batch, cancel)
	} else {
		r.limits.ended()
	}
	r.running.Go(func() {
		defer cancel()
		if !reserved {
			if r.limits.reserve(ctx, bytes) != nil {
				return
			}
			r.queue.begun(batch, cancel)
		}
		r.fetch(call, batch)
		r.limits.endedLarge(bytes)
		r.queue.ended(batch, call.Err() != nil && ctx.Err() == nil)
	})
}

// dropParts gives up the parts that are kept.
func (r *Race) dropParts() {
	r.mu.Lock()
	parts := r.parts
	r.parts = nil
	r.mu.Unlock()
	for _, release := range parts {
		release()
	}
}

// fetch makes one call for files.
func (r *Race) fetch(ctx context.Context, batch []file) {
	ds := make([]digest.Digest, len(batch))
	for i, f := range batch {
		ds[i] = f.digest
	}
	// Callers that need a missing file get the error themselves.
	full, began := r.queue.full(), time.Now()
	fetched, _ := r.source.Prefetch(ctx, ds)
	if ctx.Err() == nil && len(fetched) > 0 && !batch[0].class.way.isLarge() {
		carried := sizes(fetched)
		r.limits.pace.took(began, carried, full && 2*carried >= bytesOf(batch))
	}
	r.mu.Lock()
	r.fetched = append(r.fetched, fetched...)
	for _, d := range fetched {
		r.stats.Files.add(d)
	}
	r.mu.Unlock()
	r.reads.ended(batch, fetched)
	r.mentions.ended(batch, fetched)
}

// sizes returns how many bytes blobs have together.
func sizes(ds []digest.Digest) (bytes int64) {
	for _, d := range ds {
		bytes += d.SizeBytes()
	}
	return bytes
}
