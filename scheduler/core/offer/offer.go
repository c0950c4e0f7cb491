package offer

import (
	"cmp"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// An Offer is what all workers of a pool serve.
type Offer struct {
	Prefix string
	// Platform is what the workers have; Exact: they take those actions alone that ask for nothing else and nothing less.
	Platform request.Platform
	Exact    bool
}

// A Key tells offers apart: by prefix, the Key of the platform, and what that implies.
type Key struct{ prefix, platform, implied string }

// Key is that of an offer.
func (o Offer) Key() Key { return Key{o.Prefix, o.Platform.Key(), o.Platform.ImpliedKey()} }

// Has reports whether a worker that says this is of the pool. One that says nothing of what it
// implies is of any that is the same otherwise.
func (o Offer) Has(prefix string, platform request.Platform) bool {
	return o.Prefix == prefix && o.Platform.Key() == platform.Key() &&
		(platform.ImpliedKey() == "" || platform.ImpliedKey() == o.Platform.ImpliedKey())
}

// Fits reports whether the workers have what an action asks for.
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

// Stranger says by how many properties the workers are further from what an action asks for than those of another offer.
func (o Offer) Stranger(than Offer, asked request.Platform) int {
	distance := func(o Offer) int {
		unknown, extras := o.Platform.Distance(asked)
		return unknown + extras
	}
	return distance(o) - distance(than)
}

// Meets reports whether there are instance names that both pools serve.
func (o Offer) Meets(other Offer) bool {
	return instance.Below(o.Prefix, other.Prefix) || instance.Below(other.Prefix, o.Prefix)
}

// Compare orders offers by prefix and platform.
func Compare(a, b Offer) int {
	return cmp.Or(cmp.Compare(a.Prefix, b.Prefix), cmp.Compare(a.Platform.Key(), b.Platform.Key()),
		cmp.Compare(a.Platform.ImpliedKey(), b.Platform.ImpliedKey()))
}

// differs returns what the workers lack to run an action, and what the action does not ask for although they
// have to be asked for it.
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
