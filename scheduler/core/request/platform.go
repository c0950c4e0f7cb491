package request

import (
	"slices"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// A Platform is a set of properties in canonical order. Names may repeat. The
// zero Platform has none. Two platforms are the same if their Keys are.
type Platform struct {
	key        string
	properties []Property
}

// A Property is one of a Platform.
type Property struct{ Name, Value string }

func (p Property) String() string { return p.Name + "=" + p.Value }

// NewPlatform sorts m's properties by name, then value. A nil m has none.
func NewPlatform(m *repb.Platform) Platform {
	ps := make([]Property, 0, len(m.GetProperties()))
	for _, p := range m.GetProperties() {
		ps = append(ps, Property{p.GetName(), p.GetValue()})
	}
	slices.SortFunc(ps, func(a, b Property) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Value, b.Value)
	})
	var key []byte
	for _, p := range ps {
		key = p.appendKey(key)
	}
	return Platform{key: string(key), properties: ps}
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
	m := &repb.Platform{}
	for _, q := range p.properties {
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: q.Name, Value: q.Value})
	}
	return m
}

// AppendKey appends the part of a Platform's Key that is one property's.
func AppendKey(b []byte, name, value string) []byte { return Property{name, value}.appendKey(b) }

// Without returns those of the properties that other has not.
func (p Platform) Without(other Platform) (list []string) {
	for _, q := range p.properties {
		if !slices.Contains(other.properties, q) {
			list = append(list, q.String())
		}
	}
	return list
}

// Value returns a property's value, the first one; empty if there is none.
func (p Platform) Value(name string) string {
	for _, q := range p.properties {
		if q.Name == name {
			return q.Value
		}
	}
	return ""
}

// Properties returns a copy of what the platform has, in canonical order.
func (p Platform) Properties() []Property { return slices.Clone(p.properties) }

// Has reports whether the platform has a property with that value.
func (p Platform) Has(name, value string) bool {
	return slices.Contains(p.properties, Property{name, value})
}
