package prefetch

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch/score"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/records/record"
)

// An Action identifies an action in Profiles. Actions with equal Instance and Digest are the same;
// actions with equal Instance and Kind are similar.
type Action struct {
	Instance string
	Digest   digest.Digest // of digest.OfReduced
	kind.Kind
}

// exactKey is false for an action that has no digest.
func (a Action) exactKey() (record.Key, bool) {
	return record.Key{Bucket: names.ProfileBucket, Instance: a.Instance, Digest: a.Digest}, !a.Digest.IsZero()
}

// coarseKey is false for an action of which too little is known.
func (a Action) coarseKey() (record.Key, bool) {
	if a.Digest.IsZero() {
		return record.Key{}, false
	}
	d, ok := a.Kind.Digest(a.Digest.Function())
	return record.Key{Bucket: names.CoarseBucket, Instance: a.Instance, Digest: d}, ok
}

// run returns the id of an action in a coarse history.
func (a Action) run() uint64 {
	hash := a.Digest.Hash()
	b, err := hex.DecodeString(hash[:16])
	if err != nil {
		panic("prefetch: a digest has a hash that is not hexadecimal: " + hash)
	}
	return binary.BigEndian.Uint64(b)
}

// Origin is the kind of a profile.
type Origin uint8

// The origins of profiles.
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
	// MaxAge is how long a record in memory is used without asking the store, where other programs
	// may have changed it; 0 is a minute.
	MaxAge time.Duration
	// Timeout limits each call of the store; 0 is two seconds.
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

// Profiles remember which paths runs of actions read, in a Store and, for recent actions, in
// memory. Their methods may be called concurrently. If the store fails, hangs or returns nonsense,
// they know less; that is logged, and never an error.
type Profiles struct {
	store         *record.Careful
	cache         *cache
	maxAge        time.Duration
	exact, coarse rules
}

// NewProfiles returns the Profiles in s, which the caller closes. It does not ask s.
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
		coarse: coarseRules(o.Filter),
	}
}

// Find returns the expected reads of a run of a: the paths that any of the last few runs of the
// same action read, or else those that a good share of the last similar actions read, or else nil
// and None. Those that predicted badly lately count as none. It may wait for the store, twice, and
// takes microseconds for recently used records.
func (p *Profiles) Find(ctx context.Context, a Action) (*Profile, Origin) {
	if k, ok := a.exactKey(); ok {
		if found := p.look(ctx, k, p.exact).known.Load().trusted(p.exact); found != nil {
			return found, Exact
		}
	}
	if k, ok := a.coarseKey(); ok {
		if found := p.look(ctx, k, p.coarse).known.Load().trusted(p.coarse); found != nil {
			return found, Coarse
		}
	}
	return nil, None
}

// Learn is that of the Verdict on a run of a that was not compared.
func (p *Profiles) Learn(ctx context.Context, a Action, paths []PathHash, in Inputs, seen ...Seen) {
	Verdict{profiles: p, action: a}.Learn(ctx, paths, in, seen...)
}

// Learn remembers that the run has read these paths, in the order of Recorder.Hashes, these inputs,
// which it keeps, and these parts of large files. For files whose reads were not seen, the known
// parts stay. Failed runs must not be learnt: they may have read too little. Nor must a run without
// reads, because it was not watched. Learn writes only new information, and may wait for the store.
func (v Verdict) Learn(ctx context.Context, paths []PathHash, in Inputs, seen ...Seen) {
	p, a := v.profiles, v.action
	if len(paths) == 0 {
		return
	}
	now := readingOf(paths)
	if k, ok := a.exactKey(); ok {
		e := p.look(ctx, k, p.exact)
		news := p.learn(e, v, a.run(), now, p.exact)
		news = p.learnInputs(e, in) || news
		if p.learnRanges(e, seen, p.exact) || news {
			p.write(ctx, e)
		}
	}
	if k, ok := a.coarseKey(); ok {
		e := p.look(ctx, k, p.coarse)
		news := p.learn(e, v, a.run(), now, p.coarse)
		if p.learnRanges(e, seen, p.coarse) || news {
			p.write(ctx, e)
		}
	}
}

// Flush writes unwritten records, at the end of a program: not each run of similar actions is
// written at once, and the store may have failed.
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
		known := e.known.Load()
		if filter := found.filter().Message().GetBloomFilter(); !bytes.Equal(filter, e.stored) {
			e.stored = filter
			if !found.score.Known() { // of a program that knows no scores
				found.score = known.score
			}
			e.known.Store(found)
			e.misled = nil
			break
		}
		if found.ranges != nil {
			known = known.withRanges(found.ranges)
		}
		if found.score.Known() && r.score.Trusts(found.score) != r.score.Trusts(known.score) {
			known = known.withScore(found.score) // another worker's: this one has written its own
		}
		e.known.Store(known)
	}
	e.mu.Unlock()
	p.cache.weigh(e)
	return e
}

// learn adds a run to e and reports whether it must be written.
func (p *Profiles) learn(e *entry, v Verdict, run uint64, now reading, r rules) bool {
	e.mu.Lock()
	known := e.known.Load()
	// Rather no past than one that does not return. If another run was misled meanwhile, this one need
	// not have been; and a past that another run has made is of now.
	if v.misled && e.misled != nil && !r.shape.distinct {
		known = (&knowledge{}).beside(known.withScore(score.Renewed(*e.misled, known.score)))
	}
	next, changed := known.learn(run, now, r)
	if changed {
		e.misled = nil
		e.known.Store(next.beside(known))
		if next.history.foreseesAs(known.history) && known.history.ranks != nil && !e.reorders.due() {
			e.held++
		} else {
			e.changes++
		}
	}
	due := r.due(e.changes, next.history)
	e.mu.Unlock()
	p.cache.weigh(e)
	return due
}

// learnInputs keeps inputs of the last run in e, and reports whether they must be written: not if
// the store seems to drop them, as it did the history.
func (p *Profiles) learnInputs(e *entry, in Inputs) bool {
	e.mu.Lock()
	known := e.known.Load()
	next, due := known, false
	if len(in.Directories) > 0 && outdated(known.directories, in.Directories, staleDirectories) {
		next, due = next.withDirectories(in.Directories), true
	}
	if len(in.First) > 0 && !slices.Equal(known.first, in.First) {
		next = next.withFirst(in.First)
		due = due || outdated(digestsOf(known.first), digestsOf(in.First), staleFirst)
	}
	due = due && known.history != nil
	e.known.Store(next)
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
		due = r.due(e.changes, known.history)
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
