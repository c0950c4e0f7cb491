package prefetch

import (
	"context"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// foresee takes files that the profile foresees; it does not keep the slice.
func (r *Race) foresee(files []file) {
	if files = r.count(files); len(files) > 0 {
		r.queue.foresee(files)
	}
}

// near takes neighbours of opened files. Those that the profile predicts, too, go ahead of its
// other files.
func (r *Race) near(found []neighbour, doubt int64) {
	files := make([]file, len(found))
	for i, n := range found {
		files[i] = file{digest: n.digest, hash: n.hash, class: class{way: near}}
	}
	if len(files) > 0 {
		r.count(r.queue.unforeseen(files))
	}
	r.queue.near(files, doubt)
}

// follow has files read ahead that others mention, until ctx ends.
func (r *Race) follow(ctx context.Context, s Spec) {
	of := follow.Spec{
		Root: r.root, Source: r.source, Contents: s.Contents, Scans: r.limits.scans,
		Request: r.mention, Unmentioned: r.events.unmentioned, Fetch: func(ds []digest.Digest) { r.want(ctx, ds) },
	}
	if r.profile != nil {
		of.Foresees = func(path string) bool { return r.profile.containsCheap(HashPath(path)) }
	}
	r.mentions, r.mentioned = follow.New(of), map[PathHash]follow.File{}
	r.running.Go(func() { r.mentions.Run(ctx) })
}

// KnowCommand tells the Race the command, which mentions files. It is called once at most.
func (r *Race) KnowCommand(c Command) { r.mentions.KnowCommand(c) }

// mention takes files that others mention. They have their own credit.
func (r *Race) mention(found []follow.File) {
	files := make([]file, len(found))
	r.mu.Lock()
	for i, f := range found {
		files[i] = file{digest: f.Digest, hash: HashPath(f.Path), class: class{way: mentioned, rare: f.Doubtful}}
		r.mentioned[files[i].hash] = f
	}
	r.mu.Unlock()
	r.count(r.queue.unforeseen(files))
	r.queue.guess(files)
}

// Came reports that the content of a file that the action opens is there, or that of an arriving
// one begins to be, and where it was before. It does not wait.
func (r *Race) Came(d digest.Digest, was cas.Presence) { r.mentions.Came(d, was) }

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
		began := time.Now()
		batch, some := r.queue.take()
		switch {
		case some != nil:
			release := r.source.PrefetchRanges(ctx, batch[0].digest, some)
			r.mu.Lock()
			r.releases = append(r.releases, release)
			r.mu.Unlock()
			r.limits.ended()
		case len(batch) == 0:
			r.limits.ended()
		case batch[0].class.way.isLarge():
			r.sendLarge(ctx, batch)
		default:
			r.running.Go(func() { r.fetchSmall(ctx, batch, began) })
		}
	}
}

// fetchSmall makes the call for small files, which were taken after began, and measures the link by
// it.
func (r *Race) fetchSmall(ctx context.Context, batch []file, began time.Time) {
	fetched, err := r.source.Prefetch(ctx, digestsIn(batch))
	if ctx.Err() == nil && len(fetched) > 0 {
		carried := sizes(fetched)
		use := r.queue.usage(began)
		use.full = use.full && 2*carried >= bytesOf(batch)
		r.limits.pace.took(began, carried, use)
	}
	r.ended(batch, fetched, err)
	r.limits.ended()
	r.queue.ended(batch, false)
}

// sendLarge starts the call for a large file, for which there must be free bytes, too. Nothing else
// waits for that: meanwhile it does not count as a call.
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
		fetched, err := r.source.Prefetch(call, digestsIn(batch))
		r.ended(batch, fetched, err)
		r.limits.endedLarge(bytes)
		r.queue.ended(batch, call.Err() != nil && ctx.Err() == nil)
	})
}

// dropParts gives up the parts that are kept.
func (r *Race) dropParts() {
	r.mu.Lock()
	releases := r.releases
	r.releases = nil
	r.mu.Unlock()
	for _, release := range releases {
		release()
	}
}

// ended notes the end of a call for files. Callers that need a missing file get the error
// themselves.
func (r *Race) ended(batch []file, fetched []digest.Digest, err error) {
	var followed []follow.File
	r.mu.Lock()
	for _, f := range batch {
		if f.class.way == mentioned {
			followed = append(followed, r.mentioned[f.hash])
		}
	}
	r.fetched = append(r.fetched, fetched...)
	for _, d := range fetched {
		r.stats.Files.add(d)
	}
	r.mu.Unlock()
	r.events.ended(batch, fetched)
	r.mentions.Ended(followed, fetched, err)
}

// digestsIn returns the digests of files.
func digestsIn(batch []file) []digest.Digest {
	ds := make([]digest.Digest, len(batch))
	for i, f := range batch {
		ds[i] = f.digest
	}
	return ds
}

// sizes returns how many bytes blobs have together.
func sizes(ds []digest.Digest) (bytes int64) {
	for _, d := range ds {
		bytes += d.SizeBytes()
	}
	return bytes
}
