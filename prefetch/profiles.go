package prefetch

import (
	"bytes"
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/records/record"
)

// Bounds of what is remembered of one action.
const (
	exactRuns  = 4
	exactPaths = 1 << 15 // about 350 KiB in a store; of larger runs only the filter is kept
)

// Origin says where a profile comes from.
type Origin uint8

// The origins of profiles.
const (
	None   Origin = iota // there is no profile
	Exact                // runs of the same action, with other inputs maybe
	Coarse               // runs of actions that are like it
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

// ProfilesOptions are what may be chosen about Profiles. The zero value is good.
type ProfilesOptions struct {
	Filter ProfileOptions
	// CacheBytes bounds the memory for what is remembered of many actions; 0 is 64 MiB.
	CacheBytes int
	// MaxAge is how long the store is not asked again for what is in memory, which
	// others that use the store may have changed meanwhile; 0 is a minute.
	MaxAge time.Duration
	// Timeout bounds each call of the store; 0 is two seconds.
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

// Profiles remember which paths runs of actions read, in a Store and of late ones in
// memory. Their methods may be called concurrently. A store that fails, hangs or holds
// nonsense makes them know less; that is logged, and never an error.
type Profiles struct {
	store         *record.Careful
	cache         *cache
	maxAge        time.Duration
	exact, coarse rules
}

// NewProfiles returns the Profiles in s, which stays the caller's. It does not ask s.
func NewProfiles(s record.Hints, o ProfilesOptions) *Profiles {
	o = o.withDefaults()
	return &Profiles{
		store: record.NewCareful(s, record.CarefulOptions{
			Timeout: o.Timeout, Logger: o.Logger,
			Subject: "profiles", Without: "actions do",
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

// Find returns what a run of a will read, to the best of knowledge: what any of the last
// few runs of the same action read, else what a good share of the last actions that are
// like it read, else nil and None. It may wait for the store, twice, and takes
// microseconds for what was used lately.
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

// Learn remembers that a run of a has read these paths, in the order in which Recorder.Hashes returns
// them, went through these directories, as Directories does, and read these parts of large files; it keeps the
// directories. Of files that the run was not seen to read what is known stays.
// Runs that failed are not to be learnt: they may have read too little. Nor is a run that
// read nothing, for it was not watched. Learn writes only what says something new, and
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

// Flush writes what was learnt and is not written yet: of actions that are alike not each
// run is written, and the store may have failed. It is for the end of a program.
func (p *Profiles) Flush(ctx context.Context) {
	for _, e := range p.cache.all() {
		p.write(ctx, e)
	}
}

// look returns what is known under k, after asking the store if need be.
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
	case e.changes > 0: // as good as what others have written, and not there yet
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

// learn adds a run to what e knows and reports whether it is to be written.
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

// learnDirectories keeps the directories of the last run with what e knows of it, and
// reports whether that is to be written: not where a store seems to drop them, as it did
// the history.
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

// learnRanges adds to what e knows and reports whether that is to be written: not where a store seems to drop
// it, as it did the history.
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

// write brings what e knows to the store, unless somebody is at it already: that one
// writes what is newer by then, too.
func (p *Profiles) write(ctx context.Context, e *entry) {
	const rounds = 2 // what comes while the second is written waits for the next run
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
