package prefetch

import (
	"math"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch/score"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// knowledge has the runs under one key. It is immutable. Its zero value has no runs.
type knowledge struct {
	// history is nil if it is not known: the filter came without, or there are too many
	// paths for one.
	history *history
	// filter makes the profile of the expected reads, once; nil if there is none.
	filter func() *Profile
	// directories are those of the last run, of exact records only. It is nil if they are
	// not known, and they may be outdated.
	directories []digest.Digest
	// first are the files that the last run read first, of exact records only. It is nil if they are
	// not known, and they may be outdated.
	first []First
	// ranges are the parts of large files that runs were seen to read.
	ranges ranges
	// score is how well it predicted, and that of what it replaced if nothing else is known.
	score score.Score
}

// merged bounds how many more paths than the last run a filter without history may
// hold, as a factor: beyond, it is replaced, for it cannot forget.
const merged = 1.25

// mostFalse is the share of false positives from which on a profile is not worth asking.
const mostFalse = 0.5

// profile returns nil where none is of use.
func (k *knowledge) profile() *Profile {
	if k.filter == nil {
		return nil
	}
	p := k.filter()
	if p.ones == 0 || p.FalsePositives() > mostFalse {
		return nil
	}
	if k.directories != nil || k.first != nil || k.ranges != nil {
		with := *p
		with.directories, with.first, with.ranges = k.directories, k.first, k.ranges
		p = &with
	}
	return p
}

// learn returns the knowledge after one more run, and false if that is the same.
func (k *knowledge) learn(run uint64, now reading, r rules) (*knowledge, bool) {
	foreign := k.history == nil && k.filter != nil
	if !r.shape.distinct && (foreign || len(now.paths) > r.shape.paths) {
		return k.learnWithoutHistory(now, r)
	}
	h, changed := k.history.with(run, now, r.shape)
	if !changed {
		return k, false
	}
	return &knowledge{history: h, filter: r.filterOf(h)}, true
}

// learnWithoutHistory is for filters from programs that keep nothing else, and for runs that are
// too large. It begins a history when it replaces such a filter.
func (k *knowledge) learnWithoutHistory(now reading, r rules) (*knowledge, bool) {
	paths := now.paths
	if p := k.profile(); p != nil {
		missing := p.missing(paths)
		all := p.Paths() + len(missing)
		if len(missing) == 0 && float64(all-len(paths)) <= p.uncertainty() {
			return k, false
		}
		if float64(all) <= merged*float64(len(paths)) && p.canHold(all, r.options) {
			if len(missing) == 0 {
				return k, false
			}
			return withFilter(p.with(missing)), true
		}
	}
	if len(paths) <= r.shape.paths {
		return (&knowledge{}).learn(0, now, r)
	}
	p := NewProfile(paths, r.options)
	return withFilter(p), k.filter == nil || !p.filter.Equal(k.filter().filter)
}

func withFilter(p *Profile) *knowledge { return &knowledge{filter: func() *Profile { return p }} }

// beside returns k with what o has of other kinds, from runs of the same actions.
func (k *knowledge) beside(o *knowledge) *knowledge {
	next := *k
	next.directories, next.first, next.ranges, next.score = o.directories, o.first, o.ranges, o.score
	return &next
}

// withScore returns k with a score.
func (k *knowledge) withScore(s score.Score) *knowledge {
	next := *k
	next.score = s
	return &next
}

// withDirectories returns k with the directories of the last run.
func (k *knowledge) withDirectories(ds []digest.Digest) *knowledge {
	next := *k
	next.directories = ds
	return &next
}

// withFirst returns k with the files that the last run read first.
func (k *knowledge) withFirst(files []First) *knowledge {
	next := *k
	next.first = files
	return &next
}

// withRanges returns k with the parts of large files that runs read.
func (k *knowledge) withRanges(r ranges) *knowledge {
	next := *k
	next.ranges = r
	return &next
}

// missing returns those of paths that p does not have.
func (p *Profile) missing(paths []PathHash) []PathHash {
	var missing []PathHash
	for _, h := range paths {
		if !p.Contains(h) {
			missing = append(missing, h)
		}
	}
	return missing
}

// uncertainty returns the possible error of Paths: three standard deviations of the estimate (with
// a = kn/m its variance is m(e^a-1-a)/k², Swamidass and Baldi 2007), and the paths that are in p
// only as false positives.
func (p *Profile) uncertainty() float64 {
	m, k, n := float64(p.filter.Cap()), float64(p.filter.K()), float64(p.Paths())
	a := k * n / m
	return 1 + 3*math.Sqrt(m*(math.Exp(a)-1-a))/k + n*p.FalsePositives()
}

// canHold reports whether n paths in p make not many more false positives than in a
// profile that is made for them.
func (p *Profile) canHold(n int, o ProfileOptions) bool {
	m, _ := dimensions(n, o.withDefaults())
	return 3*p.filter.Cap() >= 2*m
}

// trusted returns the profile if it predicted well, or was never compared.
func (k *knowledge) trusted(r rules) *Profile {
	if !r.score.Trusts(k.score) {
		return nil
	}
	return k.profile()
}

// marshal returns k as a value of a store; k has learnt something.
func (k *knowledge) marshal() ([]byte, error) {
	m := k.filter().Message()
	return proto.MarshalOptions{Deterministic: true}.Marshal(&profiles.Record{
		BloomFilter: m.GetBloomFilter(), BloomFilterHashFunctions: m.GetBloomFilterHashFunctions(),
		History: k.history.message(), Directories: directoriesMessage(k.directories), Ranges: rangesMessage(k.ranges),
		RightPerMille: k.score.PerMille(), First: firstMessage(k.first),
	})
}

// sizeBytes estimates the memory that k takes, a filter that is still to be made included.
func (k *knowledge) sizeBytes() int {
	size := 1 << 9
	if k.history != nil {
		size += 17*len(k.history.paths) + 8*len(k.history.runs)
	} else if k.filter != nil {
		size += k.filter().SizeBytes()
	}
	return size + digestBytes*(len(k.directories)+len(k.first)) + 48*len(k.ranges) + 16*k.ranges.count()
}

// digestBytes is about the memory of a digest.
const digestBytes = 48

// Limits of the records of one action, and of similar ones.
const (
	exactRuns  = 4
	exactPaths = 1 << 15 // about 350 KiB in a store; of larger runs only the filter is kept

	coarseRuns  = maxRuns
	coarsePaths = 1 << 14 // about 200 KiB in a store
)

// The share of the actions that have to read a path, in percent, so that it is foreseen, and so
// that it is if it is cheap: a round trip in ten costs more than ten cheap files.
const (
	coarseShare      = 30
	coarseCheapShare = 10
)

// rules are those of one bucket.
type rules struct {
	shape   shape
	options ProfileOptions
	// least and leastCheap return how many of so many runs must read a path for it to be predicted,
	// for any size and for cheap ones.
	least, leastCheap func(runs int) int
	score             score.Rules
}

func exactRules(o ProfileOptions) rules {
	one := func(int) int { return 1 }
	return rules{
		shape: shape{runs: exactRuns, paths: exactPaths}, options: o, least: one, leastCheap: one,
		score: score.Rules{Latest: 1.0 / 2, Poor: 1.0 / 2},
	}
}

func coarseRules(o ProfileOptions) rules {
	return rules{
		shape: shape{runs: coarseRuns, paths: coarsePaths, distinct: true}, options: o,
		least:      func(n int) int { return coarseLeast(n, coarseShare) },
		leastCheap: func(n int) int { return coarseLeast(n, coarseCheapShare) },
		score:      score.Rules{Latest: 1.0 / 4, Poor: 1.0 / 8},
	}
}

// coarseLeast returns how many of so many actions are that share. With the first of them
// there is nothing to compare; from then on a single reader is never enough, so that the
// own sources of an action are not taken for those of all.
func coarseLeast(actions, share int) int {
	if actions < 2 {
		return 1
	}
	return max(2, (actions*share+99)/100)
}

// due reports whether a record with this history that has changed so many times is worth writing: a
// coarse one the first three times, and later when half of it may be other actions'.
func (r rules) due(changes int, h *history) bool {
	if h != nil && r.shape.distinct {
		return changes >= max(1, len(h.runs)/2)
	}
	return changes > 0
}

func (r rules) filterOf(h *history) func() *Profile {
	return sync.OnceValue(func() *Profile {
		n := len(h.runs)
		p := NewProfile(h.readByAtLeast(r.least(n)), r.options)
		p.history = h
		if fewer := r.leastCheap(n); fewer < r.least(n) {
			p.cheap = NewProfile(h.readByAtLeast(fewer), r.options)
		}
		return p
	})
}

// parse returns the knowledge in a value of a store, with digests of fn; malformed parts are
// ignored.
func (r rules) parse(value []byte, fn digest.Function) *knowledge {
	var m profiles.Record
	if len(value) == 0 || proto.Unmarshal(value, &m) != nil {
		return &knowledge{}
	}
	k := &knowledge{}
	if m.GetHistory() != nil {
		if k.history = parseHistory(m.GetHistory(), r.shape); k.history != nil {
			k.filter = r.filterOf(k.history)
		}
	}
	p, ok := ParseProfile(&fsac.FileSystemAccessProfile{
		BloomFilter: m.GetBloomFilter(), BloomFilterHashFunctions: m.GetBloomFilterHashFunctions(),
	})
	if ok && k.history == nil {
		k.filter = withFilter(p).filter
	}
	k.ranges, k.score = parseRanges(m.GetRanges()), score.Parse(m.RightPerMille)
	if !r.shape.distinct {
		k.directories, k.first = parseDirectories(m.GetDirectories(), fn), parseFirst(m.GetFirst(), fn)
	}
	return k
}
