package core

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// A Match says which workers may run an action.
type Match string

// The ways to match.
const (
	// MatchOffered: those that offer all that the action asks for.
	MatchOffered Match = "offered"
	// MatchExact: those whose platform is the action's, no more and no less.
	MatchExact Match = "exact"
)

// String, Set and Type make it the value of a flag.
func (m *Match) String() string { return string(*m) }

// Set takes one of the ways.
func (m *Match) Set(s string) error {
	if Match(s) != MatchOffered && Match(s) != MatchExact {
		return fmt.Errorf("%q is neither %s nor %s", s, MatchOffered, MatchExact)
	}
	*m = Match(s)
	return nil
}

// Type is for pflag.
func (m *Match) Type() string { return "match" }

// pools are those that there are.
type pools struct {
	byKey map[poolKey]*pool
	// fitting has, by the key of a platform, the pools that fit it, the best first. It is made anew when the pools change.
	fitting map[string][]candidate
	// known are the names of all properties that workers have or had.
	known map[string]struct{}
}

// A poolKey tells pools apart: by prefix, the Key of the platform, and what that implies.
type poolKey struct{ prefix, platform, implied string }

const (
	// mostFitting bounds the platforms of which it is remembered which pools fit, and mostKnown the names that are known.
	mostFitting, mostKnown = 1000, 10_000
	// unknownGrace is how long an action waits for a worker with a property of which no worker has ever had the name. It is
	// also how long after the start workers may take to come.
	unknownGrace = 5 * time.Second
)

func newPools() pools {
	return pools{byKey: map[poolKey]*pool{}, fitting: map[string][]candidate{}, known: map[string]struct{}{}}
}

func (p *pool) key() poolKey { return keyOf(p.prefix, p.platform) }

func keyOf(prefix string, platform request.Platform) poolKey {
	return poolKey{prefix, platform.Key(), platform.ImpliedKey()}
}

// has reports whether a worker is of the pool. One that says nothing of what it implies is of any that is the same
// otherwise.
func (p *pool) has(prefix string, platform request.Platform) bool {
	return p.prefix == prefix && p.platform.Key() == platform.Key() &&
		(platform.ImpliedKey() == "" || platform.ImpliedKey() == p.platform.ImpliedKey())
}

// fits reports whether the pool's workers have what an action asks for.
func (p *pool) fits(asked request.Platform) bool {
	if p.exact {
		return p.platform.Equal(asked)
	}
	return p.platform.Fits(asked)
}

// serves reports whether the pool's workers may run an action.
func (p *pool) serves(spec *request.Operation) bool {
	return instance.Below(spec.Instance, p.prefix) && p.fits(spec.Platform)
}

func comparePools(a, b *pool) int {
	return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.platform.Key(), b.platform.Key()),
		cmp.Compare(a.platform.ImpliedKey(), b.platform.ImpliedKey()))
}

// sorted returns the pools in the order of their prefix and platform.
func (ps *pools) sorted() []*pool { return slices.SortedFunc(maps.Values(ps.byKey), comparePools) }

// changed notes that a pool has come, or is another one.
func (ps *pools) changed(p *pool) {
	clear(ps.fitting)
	ps.byKey[p.key()] = p
	for name := range p.platform.Names() {
		if len(ps.known) < mostKnown {
			ps.known[name] = struct{}{}
		}
	}
}

// discard forgets a pool, which has no queues any more.
func (ps *pools) discard(p *pool) {
	clear(ps.fitting)
	delete(ps.byKey, p.key())
	p.leaveCohort()
}

// pool returns the pool of a prefix and platform, made if need be. Workers that say what they imply and those that do not,
// such as Buildbarn's, are one pool if they are the same otherwise.
func (d *dispatcher) pool(prefix string, platform request.Platform) *pool {
	if p := d.pools.byKey[keyOf(prefix, platform)]; p != nil {
		return p
	}
	if platform.ImpliedKey() == "" {
		for _, p := range d.pools.sorted() {
			if p.has(prefix, platform) {
				return p
			}
		}
	} else if p := d.pools.byKey[poolKey{prefix: prefix, platform: platform.Key()}]; p != nil {
		delete(d.pools.byKey, p.key())
		p.platform = platform
		d.pools.changed(p)
		d.rematchUnmatched(func(t *task) bool { return p.serves(t.spec) })
		for _, q := range p.queues {
			if q.served() {
				d.relieve(q)
			}
		}
		return p
	}
	p := d.newPool(prefix, platform)
	d.pools.changed(p)
	return p
}

// A candidate is a pool that fits a platform. unknown and extras are Platform.Distance.
type candidate struct {
	*pool
	unknown, extras int
}

// equals reports whether only the wait speaks for one or another.
func (c candidate) equals(other candidate) bool {
	return len(c.prefix) == len(other.prefix) && c.unknown == other.unknown && c.extras == other.extras
}

// candidates yields the pools that may run an action, served or not: those with the longest instance name prefix first, of
// these the ones that know most of what it asks for, then those with the fewest properties for which it does not ask.
func (ps *pools) candidates(spec *request.Operation) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		for _, c := range ps.fittingTo(spec.Platform) {
			if instance.Below(spec.Instance, c.prefix) && !yield(c) {
				return
			}
		}
	}
}

func (ps *pools) fittingTo(asked request.Platform) []candidate {
	if list, ok := ps.fitting[asked.Key()]; ok {
		return list
	}
	var list []candidate
	for _, p := range ps.byKey {
		if p.fits(asked) {
			c := candidate{pool: p}
			c.unknown, c.extras = p.platform.Distance(asked)
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), cmp.Compare(a.unknown, b.unknown),
			cmp.Compare(a.extras, b.extras), comparePools(a.pool, b.pool))
	})
	if len(ps.fitting) >= mostFitting {
		clear(ps.fitting)
	}
	ps.fitting[asked.Key()] = list
	return list
}

// patience returns until when a task that is unmatched waits for a worker: not for long if it asks for a property of which no
// worker has ever had the name, as where that is misspelt, unless there are classes of workers that may not have been started yet.
func (d *dispatcher) patience(t *task) time.Time {
	since := t.at.(unmatched).since
	long := since.Add(d.cfg.MatchGrace)
	if d.cfg.Match == MatchExact || len(d.cfg.Sizes) > 0 || len(d.pools.byKey) == 0 {
		return long
	}
	for _, name := range t.spec.Platform.Wants() {
		if _, known := d.pools.known[name]; known {
			continue
		}
		start := since
		if d.begun.After(start) {
			start = d.begun
		}
		if short := start.Add(unknownGrace); short.Before(long) {
			return short
		}
	}
	return long
}

// asked counts the tasks of a queue that ask for one platform.
type asked struct {
	platform request.Platform
	tasks    int
}

func (q *queue) ask(p request.Platform) {
	a := q.asked[p.Key()]
	if a == nil {
		a = &asked{platform: p}
		if q.asked == nil {
			q.asked = map[string]*asked{}
		}
		q.asked[p.Key()] = a
	}
	a.tasks++
}

func (q *queue) unask(p request.Platform) {
	a := q.asked[p.Key()]
	if a.tasks--; a.tasks == 0 {
		delete(q.asked, p.Key())
	}
}
