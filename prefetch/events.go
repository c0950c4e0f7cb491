package prefetch

import (
	"context"
	"iter"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/prefetch/follow"
)

// maxOpened limits the queued opens.
const maxOpened = 4096

// events are what a Race learns: opens of the action, and ended calls. One goroutine handles them.
type events struct {
	wake chan struct{} // one place

	mu     sync.Mutex
	opened []string // guarded by mu; files to handle
	alone  []string // guarded by mu; opened files that no other file mentions, to handle
	calls  []call   // guarded by mu; to handle
}

// A call is an ended one, for files of a batch.
type call struct {
	batch   []file
	fetched []digest.Digest
}

// missed yields the files that it did not fetch.
func (c call) missed() iter.Seq[PathHash] {
	return func(yield func(PathHash) bool) {
		fetched := make(map[digest.Digest]struct{}, len(c.fetched))
		for _, d := range c.fetched {
			fetched[d] = struct{}{}
		}
		for _, f := range c.batch {
			if _, came := fetched[f.digest]; !came && !yield(f.hash) {
				return
			}
		}
	}
}

// Opened reports that the action is about to read path for the first time, or has just done so. It
// does not wait. Call it from vfs's OnFirstRead. The package comment describes the effect.
func (r *Race) Opened(path string, k tree.Kind) {
	if k != tree.File {
		return
	}
	r.events.note(func() {
		if len(r.events.opened) < maxOpened {
			r.events.opened = append(r.events.opened, path)
		}
	})
}

// ended reports the result of a batch.
func (e *events) ended(batch []file, fetched []digest.Digest) {
	e.note(func() { e.calls = append(e.calls, call{batch, fetched}) })
}

// note calls add, which adds an element to the queue.
func (e *events) note(add func()) {
	e.mu.Lock()
	add()
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// unmentioned reports an opened file that no profile and no other file led to.
func (e *events) unmentioned(path string) {
	e.note(func() {
		if len(e.alone) < maxOpened {
			e.alone = append(e.alone, path)
		}
	})
}

func (e *events) take() (opened, alone []string, calls []call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	opened, alone, calls = e.opened, e.alone, e.calls
	e.opened, e.alone, e.calls = nil, nil, nil
	return opened, alone, calls
}

// listen handles events until ctx ends: an open that was not predicted lowers the trust in the
// profile, and adds neighbours.
func (r *Race) listen(ctx context.Context) {
	reach, trust := newReach(r.source, r.root), trust{profile: r.profile, origin: r.origin}
	var progress progress
	blind, yields := 0, false
	for {
		if most := trust.blind(); most > blind {
			blind = most
			r.running.Go(func() { r.walk(ctx, nil, nil, most) })
		}
		r.queue.hold(trust.misfit())
		if now := trust.yields(); now != yields {
			yields = now
			r.source.Yield(yields)
		}
		select {
		case <-r.events.wake:
		case <-ctx.Done():
			return
		}
		opened, alone, calls := r.events.take()
		for _, path := range opened {
			h := HashPath(path)
			known := follow.Lacked
			if trust.opened(h) {
				when, _ := r.profile.foresees(h)
				known = r.queue.read(h, progress.opened(when))
			}
			r.mentions.Opened(path, known)
			reach.opened(path, known != follow.Lacked || r.mentions != nil)
		}
		for _, path := range alone {
			reach.opened(path, false)
		}
		for _, c := range calls {
			for h := range c.missed() {
				reach.missed(h)
			}
		}
		if reach.giveUp() {
			r.mu.Lock()
			r.stats.NearbyOff = true
			r.mu.Unlock()
			r.queue.dropNear()
		}
		r.near(reach.take(), reach.unread)
	}
}

// trust is how far a profile is trusted, by the action's opens. It belongs to one goroutine.
type trust struct {
	profile *Profile // nil: nothing is known
	origin  Origin
	// Of the files that the action opened lately: all, and those that the profile lacked.
	all, strange int
}

// The window in which opened files count; then they count half.
const trustWindow = 64

// yieldShare is that of the latest files, one in so many, that a profile must lack to yield.
const yieldShare = 16

// opened notes that the action opened the file with that path, and reports whether the profile has
// it.
func (t *trust) opened(h PathHash) (foreseen bool) {
	if t.profile == nil {
		return false
	}
	if t.all >= trustWindow {
		t.all, t.strange = t.all/2, t.strange/2
	}
	t.all++
	foreseen = t.profile.containsCheap(h)
	if !foreseen {
		t.strange++
	}
	return foreseen
}

// yields reports whether large files of the profile leave the link to what the action waits for: it
// lacked a few of the files that the action opened, so it may have others in vain.
func (t *trust) yields() bool { return t.strange > 0 && yieldShare*t.strange >= t.all }

// misfit reports whether the profile is of something else: its files are not requested until it is
// right again.
func (t *trust) misfit() bool { return t.all >= 8 && 4*t.strange >= 3*t.all }

// blind returns how many directories are fetched that the profile does not name.
func (t *trust) blind() int {
	switch {
	case t.profile == nil || t.origin == Coarse || t.strange >= 4 && 2*t.strange >= t.all:
		return maxBlind
	case t.strange > 0:
		return fewBlind
	}
	return 0
}

// progress is how far an action is, by the ranks of its latest opens. It belongs to one goroutine.
type progress struct{ files [lastRank + 1]int }

// The window in which opened files count; then they count half.
const progressWindow = 16

// opened records that the action opened a file of that rank, and returns the median of its latest
// opens.
func (p *progress) opened(when rank) (now rank) {
	p.files[when]++
	all := 0
	for _, n := range p.files {
		all += n
	}
	for upTo := p.files[0]; 2*upTo < all; upTo += p.files[now] {
		now++
	}
	if all >= progressWindow {
		for i := range p.files {
			p.files[i] /= 2
		}
	}
	return now
}
