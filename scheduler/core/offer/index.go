package offer

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// A Pool is any type with an offer.
type Pool interface {
	comparable
	Offered() Offer
}

// An Index has the existing pools, by their offers.
type Index[P Pool] struct {
	byKey map[Key]P
	// fitting has, by the key of a platform, the pools that fit it, the best first. It is
	// recomputed when the pools change.
	fitting map[string][]Candidate[P]
	// known are the names of all properties that workers have or had.
	known map[string]struct{}
	// changes counts how often the pools changed.
	changes int
}

// mostFitting limits the platforms whose fitting pools are cached, and mostKnown the known names.
const mostFitting, mostKnown = 1000, 10_000

// NewIndex returns an empty Index.
func NewIndex[P Pool]() *Index[P] {
	return &Index[P]{byKey: map[Key]P{}, fitting: map[string][]Candidate[P]{}, known: map[string]struct{}{}}
}

// Get returns the pool of an offer; the zero P if there is none.
func (x *Index[P]) Get(o Offer) P { return x.byKey[o.Key()] }

// Find returns the pool of a worker with this offer; false: there is none. Workers that report
// implied properties and those that do not, such as Buildbarn's, share a pool if they are otherwise
// equal, and if alike says so. widen is a pool of the latter, if the worker is the first to report
// more: if alike says so, the caller replaces the pool's offer, by Remove and Add.
func (x *Index[P]) Find(o Offer, alike func(P) bool) (found, widen P, ok bool) {
	var none P
	if p, ok := x.byKey[o.Key()]; ok {
		return p, none, true
	}
	if o.Platform.ImpliedKey() == "" {
		for _, p := range x.Sorted() {
			if p.Offered().Has(o.Prefix, o.Platform) && alike(p) {
				return p, none, true
			}
		}
		return none, none, false
	}
	if p, ok := x.byKey[Key{prefix: o.Prefix, platform: o.Platform.Key()}]; ok {
		return none, p, true
	}
	return none, none, false
}

// Add adds a pool.
func (x *Index[P]) Add(p P) {
	x.changed()
	o := p.Offered()
	x.byKey[o.Key()] = p
	for name := range o.Platform.Names() {
		if len(x.known) < mostKnown {
			x.known[name] = struct{}{}
		}
	}
}

// Remove removes a pool, if it exists.
func (x *Index[P]) Remove(p P) {
	if k := p.Offered().Key(); x.byKey[k] == p {
		x.changed()
		delete(x.byKey, k)
	}
}

func (x *Index[P]) changed() {
	clear(x.fitting)
	x.changes++
}

// Changes returns how often pools were added or removed.
func (x *Index[P]) Changes() int { return x.changes }

// Len returns the number of pools.
func (x *Index[P]) Len() int { return len(x.byKey) }

// All yields the pools in any order.
func (x *Index[P]) All() iter.Seq[P] { return maps.Values(x.byKey) }

// Sorted returns the pools, sorted by prefix and platform.
func (x *Index[P]) Sorted() []P {
	return slices.SortedFunc(x.All(), func(a, b P) int { return Compare(a.Offered(), b.Offered()) })
}

// Knows reports whether any worker has or had a property with a name.
func (x *Index[P]) Knows(name string) bool {
	_, known := x.known[name]
	return known
}

// A Candidate is a pool that fits a platform.
type Candidate[P Pool] struct {
	Pool P
	// prefix is its instance name prefix; unknown and extras are Platform.Distance.
	prefix          string
	unknown, extras int
}

// Equals reports whether two candidates suit the action equally well.
func (c Candidate[P]) Equals(other Candidate[P]) bool {
	return len(c.prefix) == len(other.prefix) && c.unknown == other.unknown && c.extras == other.extras
}

// Candidates yields the pools that may run an action, with or without workers. Those with the
// longest instance name prefix come first, among these the ones that know most of its properties,
// then those with the fewest properties that it does not ask for.
func (x *Index[P]) Candidates(spec *request.Operation) iter.Seq[Candidate[P]] {
	return func(yield func(Candidate[P]) bool) {
		for _, c := range x.fittingTo(spec.Platform) {
			if instance.Below(spec.Instance, c.prefix) && !yield(c) {
				return
			}
		}
	}
}

// Beside yields the pools of an instance name prefix that may run actions of a platform, the best
// first.
func (x *Index[P]) Beside(prefix string, asked request.Platform) iter.Seq[P] {
	return func(yield func(P) bool) {
		for _, c := range x.fittingTo(asked) {
			if c.prefix == prefix && !yield(c.Pool) {
				return
			}
		}
	}
}

func (x *Index[P]) fittingTo(asked request.Platform) []Candidate[P] {
	if list, ok := x.fitting[asked.Key()]; ok {
		return list
	}
	var list []Candidate[P]
	for _, p := range x.byKey {
		if o := p.Offered(); o.Fits(asked) {
			c := Candidate[P]{Pool: p, prefix: o.Prefix}
			c.unknown, c.extras = o.Platform.Distance(asked)
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b Candidate[P]) int {
		return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), cmp.Compare(a.unknown, b.unknown),
			cmp.Compare(a.extras, b.extras), Compare(a.Pool.Offered(), b.Pool.Offered()))
	})
	if len(x.fitting) >= mostFitting {
		clear(x.fitting)
	}
	x.fitting[asked.Key()] = list
	return list
}
