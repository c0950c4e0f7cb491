package prefetch

import (
	"bytes"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/records/record"
)

// Limits of the records of one action.
const (
	exactRuns  = 4
	exactPaths = 1 << 15 // about 350 KiB in a store; of larger runs only the filter is kept
)

// Origin says where a profile comes from.
type Origin uint8

// All origins.
const (
	None   Origin = iota // there is no profile
	Exact                // runs of the same action, possibly with other inputs
	Coarse               // runs of similar actions
)

// String returns the name of o in lower case.
func (o Origin) String() string {
	switch o {
	case Exact:
		return "exact"
	case Coarse:
		return "coarse"
	}
	return "none"
}

// ProfilesOptions are the options of Profiles. The zero value works.
type ProfilesOptions struct {
	Filter ProfileOptions
	// CacheBytes limits the memory for records of many actions; 0 is 64 MiB.
	CacheBytes int
	// MaxAge is how long a record in memory is used before the store is asked again, in which other
	// programs may have changed it; 0 means a minute.
	MaxAge time.Duration
	// Timeout limits each call to the store; 0 means two seconds.
	Timeout time.Duration
	Logger  *zap.Logger // nil logs nothing
}

func (o ProfilesOptions) withDefaults() ProfilesOptions {
	o.Filter = o.Filter.withDefaults()
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MaxAge <= 0 {
		o.MaxAge = time.Minute
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Profiles remembers which paths runs of actions read: in a store and, for recent actions, in
// memory. Its methods may be called concurrently. If the store fails, hangs or returns malformed
// data, Profiles predicts less. That is logged, and is never an error.
type Profiles struct {
	store         *record.Careful
	cache         *cache
	maxAge        time.Duration
	exact, coarse rules
}

// NewProfiles returns the Profiles in s. The caller closes s. NewProfiles makes no call to s.
func NewProfiles(s record.Hints, o ProfilesOptions) *Profiles {
	o = o.withDefaults()
	return &Profiles{
		store: record.NewCareful(s, record.CarefulOptions{
			Timeout: o.Timeout, Logger: o.Logger,
			Subject: "profiles", Without: "actions run without them",
		}),
		cache:  newCache(o.CacheBytes),
		maxAge: o.MaxAge,
		exact:  exactRules(o.Filter),
		coarse: rules{
			shape:      shape{runs: coarseRuns, paths: coarsePaths, distinct: true},
			options:    o.Filter,
			least:      func(n int) int { return coarseLeast(n, coarseShare) },
			leastSmall: func(n int) int { return coarseLeast(n, coarseSmallShare) },
		},
	}
}

func exactRules(o ProfileOptions) rules {
	one := func(int) int { return 1 }
	return rules{shape: shape{runs: exactRuns, paths: exactPaths}, options: o, least: one, leastSmall: one}
}

// Find returns the expected reads of a run of a: the paths that any of the last few runs of the
// same action read. If there are none, it returns the paths that a certain share of similar actions
// read or, if there are none either, nil and None. It may wait for two calls to the store. For
// recently used records it takes microseconds.
func (p *Profiles) Find(ctx context.Context, a Action) (*Profile, Origin) {
	if k, ok := a.exactKey(); ok {
		if found := p.look(ctx, k, p.exact).known.Load().profile(); found != nil {
			return found, Exact
		}
	}
	if k, ok := a.coarseKey(); ok {
		if found := p.look(ctx, k, p.coarse).known.Load().profile(); found != nil {
			return found, Coarse
		}
	}
	return nil, None
}

// Learn records that a run of a has read paths (in the order of Recorder.Hashes), directories (see
// Directories) and parts of large files. It keeps directories. For files whose reads were not
// visible, the known parts stay. The caller must not pass failed runs, which may have read too
// little, or runs without reads, which were not observed. Learn writes only new information, and
// may wait for the store.
func (p *Profiles) Learn(ctx context.Context, a Action, paths []PathHash, directories []digest.Digest, seen ...Seen) {
	if len(paths) == 0 {
		return
	}
	now := readingOf(paths)
	if k, ok := a.exactKey(); ok {
		e := p.look(ctx, k, p.exact)
		news := p.learn(e, a.run(), now, p.exact)
		news = p.learnDirectories(e, directories) || news
		if p.learnRanges(e, seen, p.exact) || news {
			p.write(ctx, e)
		}
	}
	if k, ok := a.coarseKey(); ok {
		e := p.look(ctx, k, p.coarse)
		news := p.learn(e, a.run(), now, p.coarse)
		if p.learnRanges(e, seen, p.coarse) || news {
			p.write(ctx, e)
		}
	}
}

// Flush writes all unwritten records. Call it at the end of the program: Learn does not write each
// run of similar actions at once, and the store may have failed.
func (p *Profiles) Flush(ctx context.Context) {
	for _, e := range p.cache.all() {
		p.write(ctx, e)
	}
}

// look returns the record under k, after asking the store if necessary.
func (p *Profiles) look(ctx context.Context, k record.Key, r rules) *entry {
	e := p.cache.get(k)
	if e.isFresh(p.maxAge) {
		return e
	}
	value, ok := p.store.Get(ctx, k)
	if !ok {
		return e
	}
	found := r.parse(value, k.Digest.Function())
	e.mu.Lock()
	e.asked.Store(time.Now().UnixNano())
	switch {
	case e.changes > 0: // as good as in the store, and not written yet
	case found.filter == nil:
		if e.known.Load().filter != nil {
			e.changes = 1 // the store has lost it
		}
	default:
		// A store that has kept the filter may have dropped the history.
		if filter := found.filter().Message().GetBloomFilter(); !bytes.Equal(filter, e.stored) {
			e.known.Store(found)
			e.stored = filter
		} else if found.ranges != nil {
			e.known.Store(e.known.Load().withRanges(found.ranges))
		}
	}
	e.mu.Unlock()
	p.cache.weigh(e)
	return e
}

// learn adds a run to e and reports whether it must be written.
func (p *Profiles) learn(e *entry, run uint64, now reading, r rules) bool {
	e.mu.Lock()
	known := e.known.Load()
	next, changed := known.learn(run, now, r)
	if changed {
		e.known.Store(next.withRanges(known.ranges).withDirectories(known.directories))
		if next.history.foreseesAs(known.history) && known.history.ranks != nil && !e.reorders.due() {
			e.held++
		} else {
			e.changes++
		}
	}
	due := e.changes > 0
	if next.history != nil && r.shape.distinct {
		due = coarseDue(e.changes, len(next.history.runs))
	}
	e.mu.Unlock()
	p.cache.weigh(e)
	return due
}

// learnDirectories keeps the directories of the last run in e, and reports whether they must be
// written: not if the store seems to drop them, as it did the history.
func (p *Profiles) learnDirectories(e *entry, ds []digest.Digest) bool {
	e.mu.Lock()
	known := e.known.Load()
	changed := len(ds) > 0 && outdated(known.directories, ds)
	due := changed && known.history != nil
	if changed {
		e.known.Store(known.withDirectories(ds))
	}
	if due {
		e.changes++
	}
	e.mu.Unlock()
	p.cache.weigh(e)
	return due
}

// learnRanges adds parts to e and reports whether they must be written: not if the store seems to
// drop them, as it did the history.
func (p *Profiles) learnRanges(e *entry, seen []Seen, r rules) (due bool) {
	e.mu.Lock()
	known := e.known.Load()
	next, changed := known.ranges.learn(seen)
	if changed {
		e.known.Store(known.withRanges(next))
	}
	if changed && known.history != nil {
		e.changes++
		due = !r.shape.distinct || coarseDue(e.changes, len(known.history.runs))
	}
	e.mu.Unlock()
	p.cache.weigh(e)
	return due
}

// write writes e to the store, unless another goroutine is doing that: it will also write newer
// information.
func (p *Profiles) write(ctx context.Context, e *entry) {
	const rounds = 2 // new information during the second write waits for the next run
	for range rounds {
		e.mu.Lock()
		known, changes, held := e.known.Load(), e.changes, e.held
		if changes+held == 0 || e.writing {
			e.mu.Unlock()
			return
		}
		e.writing = true
		e.mu.Unlock()
		value, err := known.marshal()
		written := err == nil && p.store.Put(ctx, e.key, value)
		e.mu.Lock()
		e.writing = false
		if written {
			e.changes -= changes
			e.held -= held
			e.stored = known.filter().Message().GetBloomFilter()
			e.asked.Store(time.Now().UnixNano())
		}
		e.mu.Unlock()
		if !written {
			return
		}
	}
}
