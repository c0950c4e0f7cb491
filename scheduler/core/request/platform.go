package request

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// A Platform is a set of properties in canonical order: of an action, or of a worker. Names may
// repeat. The zero Platform has none. Two platforms are equal if their Keys are.
type Platform struct {
	key        string
	properties []Property
	// required are those of a worker's properties that an action must ask for; implied are further
	// properties that the worker has detected. Key covers the former and not the latter.
	required, implied []Property
	impliedKey        string
}

// A Property is one of a Platform.
type Property struct{ Name, Value string }

func (p Property) String() string { return p.Name + "=" + p.Value }

// NewPlatform sorts m's properties by name, then value. A nil m has none.
func NewPlatform(m *repb.Platform) Platform {
	ps := sorted(m)
	return Platform{key: string(appendKeys(nil, ps)), properties: ps}
}

// NewOffer returns the platform of a worker: the properties of m and required, and those implied
// ones whose names are not in m. An action must ask for each of required.
func NewOffer(m, required, implied *repb.Platform) Platform {
	p := NewPlatform(m)
	if len(required.GetProperties()) > 0 {
		all := &repb.Platform{Properties: slices.Concat(m.GetProperties(), required.GetProperties())}
		p = NewPlatform(&repb.Platform{Properties: properties(slices.Compact(sorted(all)))})
		p.required = slices.Compact(sorted(required))
		p.key += "," + string(appendKeys(nil, p.required))
	}
	for _, q := range slices.Compact(sorted(implied)) {
		if !p.names(q.Name) {
			p.implied = append(p.implied, q)
		}
	}
	p.impliedKey = string(appendKeys(nil, p.implied))
	return p
}

// sorted returns a message's properties in canonical order.
func sorted(m *repb.Platform) []Property {
	ps := make([]Property, 0, len(m.GetProperties()))
	for _, p := range m.GetProperties() {
		ps = append(ps, Property{p.GetName(), p.GetValue()})
	}
	slices.SortFunc(ps, func(a, b Property) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return ps
}

func appendKeys(b []byte, ps []Property) []byte {
	for _, p := range ps {
		b = p.appendKey(b)
	}
	return b
}

func properties(ps []Property) (list []*repb.Platform_Property) {
	for _, p := range ps {
		list = append(list, &repb.Platform_Property{Name: p.Name, Value: p.Value})
	}
	return list
}

// appendKey appends the property's part of a Platform's Key.
func (p Property) appendKey(b []byte) []byte {
	return strconv.AppendQuote(strconv.AppendQuote(b, p.Name), p.Value)
}

// Key is equal for equal platforms, and only for them.
func (p Platform) Key() string { return p.key }

// String returns "{name=value, …}".
func (p Platform) String() string {
	parts := make([]string, len(p.properties))
	for i, q := range p.properties {
		parts[i] = q.String()
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// Proto returns the platform as a message, in canonical order.
func (p Platform) Proto() *repb.Platform {
	return &repb.Platform{Properties: properties(p.properties)}
}

// ImpliedKey is equal for platforms that imply the same, and only for them; empty if p implies
// nothing.
func (p Platform) ImpliedKey() string { return p.impliedKey }

// Equal reports whether two platforms have the same properties, whatever is required or implied.
func (p Platform) Equal(q Platform) bool { return slices.Equal(p.properties, q.properties) }

// Without returns the properties that other does not have.
func (p Platform) Without(other Platform) (list []Property) {
	for _, q := range p.properties {
		if !slices.Contains(other.properties, q) {
			list = append(list, q)
		}
	}
	return list
}

// Named returns the properties with a name, including implied ones, as text.
func (p Platform) Named(name string) (list []string) {
	for _, q := range slices.Concat(p.properties, p.implied) {
		if q.Name == name {
			list = append(list, q.String())
		}
	}
	return list
}

// Names yields the names of the properties, including implied ones.
func (p Platform) Names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range [...][]Property{p.properties, p.implied} {
			for _, q := range list {
				if !yield(q.Name) {
					return
				}
			}
		}
	}
}

// Required returns the properties of a worker that an action must ask for.
func (p Platform) Required() *repb.Platform { return message(p.required) }

// Implied returns further properties of a worker.
func (p Platform) Implied() *repb.Platform { return message(p.implied) }

// message is nil for no properties.
func message(ps []Property) *repb.Platform {
	if len(ps) == 0 {
		return nil
	}
	return &repb.Platform{Properties: properties(ps)}
}

// AppendKey appends one property's part of a Platform's Key.
func AppendKey(b []byte, name, value string) []byte { return Property{name, value}.appendKey(b) }

// Value returns the first value of a property; empty if there is none.
func (p Platform) Value(name string) string {
	for _, q := range p.properties {
		if q.Name == name {
			return q.Value
		}
	}
	return ""
}

// Properties returns a copy of the platform's properties, in canonical order.
func (p Platform) Properties() []Property { return slices.Clone(p.properties) }

// names reports whether the platform itself has a property of a name.
func (p Platform) names(name string) bool {
	return slices.ContainsFunc(p.properties, func(q Property) bool { return q.Name == name })
}
