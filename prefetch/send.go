package prefetch

import (
	"context"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// foresee takes files that the profile foresees; it does not keep the slice.
func (r *Race) foresee(files []file) {
	if files = r.count(files); len(files) > 0 {
		if !r.queue.doubted() {
			r.parted.foresee(files, r.profile.ranges)
		}
		r.queue.foresee(files)
	}
}

// near takes files that are next to what was opened. Those that the profile foresees, too, go ahead
// of the rest of what it foresees.
func (r *Race) near(files []file) {
	if len(files) > 0 {
		r.count(r.queue.unforeseen(files))
		r.queue.near(files)
	}
}

// count counts what is foreseen, and returns as much of it as there may be.
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
		batch := r.queue.take()
		if len(batch) == 0 {
			select {
			case <-r.queue.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		var bytes int64
		for _, f := range batch {
			bytes += f.digest.SizeBytes()
		}
		release, err := r.limits.files(ctx, bytes)
		if err != nil {
			return
		}
		r.running.Go(func() {
			r.fetch(ctx, batch)
			release()
			r.queue.ended(batch)
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
	fetched, _ := r.source.Prefetch(ctx, ds)
	r.mu.Lock()
	r.fetched = append(r.fetched, fetched...)
	for _, d := range fetched {
		r.stats.Files.add(d)
	}
	r.mu.Unlock()
	r.reads.ended(batch, fetched)
}
