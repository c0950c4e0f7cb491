package offer

import (
	"cmp"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// An Offer is common to all workers of a pool.
type Offer struct {
	Prefix string
	// Platform is the workers' platform. Exact: they take only actions with exactly these
	// properties.
	Platform request.Platform
	Exact    bool
}

// A Key distinguishes offers: by prefix, the Key of the platform, and its implied properties.
type Key struct{ prefix, platform, implied string }

// Key returns the Key of an offer.
func (o Offer) Key() Key { return Key{o.Prefix, o.Platform.Key(), o.Platform.ImpliedKey()} }

// Has reports whether a worker with this offer belongs to the pool. A worker without implied
// properties belongs to any pool that is otherwise equal.
func (o Offer) Has(prefix string, platform request.Platform) bool {
	return o.Prefix == prefix && o.Platform.Key() == platform.Key() &&
		(platform.ImpliedKey() == "" || platform.ImpliedKey() == o.Platform.ImpliedKey())
}

// Fits reports whether the workers have all properties of an action.
func (o Offer) Fits(asked request.Platform) bool {
	if o.Exact {
		return o.Platform.Equal(asked)
	}
	return o.Platform.Fits(asked)
}

// Serves reports whether the workers may run an action.
func (o Offer) Serves(spec *request.Operation) bool {
	return instance.Below(spec.Instance, o.Prefix) && o.Fits(spec.Platform)
}

// Stranger returns how many properties worse the workers suit an action than those of another
// offer.
func (o Offer) Stranger(than Offer, asked request.Platform) int {
	distance := func(o Offer) int {
		unknown, extras := o.Platform.Distance(asked)
		return unknown + extras
	}
	return distance(o) - distance(than)
}

// Meets reports whether there are instance names that both offers serve.
func (o Offer) Meets(other Offer) bool {
	return instance.Below(o.Prefix, other.Prefix) || instance.Below(other.Prefix, o.Prefix)
}

// Compare orders offers by prefix and platform.
func Compare(a, b Offer) int {
	return cmp.Or(cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.Platform.Key(), b.Platform.Key()),
		cmp.Compare(a.Platform.ImpliedKey(), b.Platform.ImpliedKey()))
}

// differs returns the properties that the workers lack for an action, and their required properties
// that the action does not ask for.
func (o Offer) differs(asked request.Platform) (lack, more []request.Property) {
	if !o.Exact {
		return o.Platform.Lacks(asked), o.Platform.Refuses(asked)
	}
	return asked.Without(o.Platform), o.Platform.Without(asked)
}

// named returns the properties of a name that count, as text.
func (o Offer) named(name string) []string {
	if o.Exact {
		return request.NewPlatform(o.Platform.Proto()).Named(name)
	}
	return o.Platform.Named(name)
}
