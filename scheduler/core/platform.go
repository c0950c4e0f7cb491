package core

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// A Platform is a set of properties in canonical order. Names may repeat. The
// zero Platform has none. Two platforms are the same if their Keys are.
type Platform struct {
	key        string
	properties []property
}

type property struct{ name, value string }

func (p property) String() string { return p.name + "=" + p.value }

// NewPlatform sorts m's properties by name, then value. A nil m has none.
func NewPlatform(m *repb.Platform) Platform {
	ps := make([]property, 0, len(m.GetProperties()))
	for _, p := range m.GetProperties() {
		ps = append(ps, property{p.GetName(), p.GetValue()})
	}
	slices.SortFunc(ps, func(a, b property) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.value, b.value)
	})
	var key []byte
	for _, p := range ps {
		key = p.appendKey(key)
	}
	return Platform{key: string(key), properties: ps}
}

// appendKey appends the property's part of a Platform's Key.
func (p property) appendKey(b []byte) []byte {
	return strconv.AppendQuote(strconv.AppendQuote(b, p.name), p.value)
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

// WorkerKey returns the canonical form of a worker's identity below an instance name prefix, which
// is also readable: {"host":"a","slot":"0"}, or acme/{"host":"a"} below acme. No two are the same.
func WorkerKey(prefix string, id map[string]string) string {
	var someNames [8]string
	var room [256]byte
	names := someNames[:0]
	b := room[:0]
	if prefix != "" {
		b = append(append(b, prefix...), '/')
	}
	for name, value := range id {
		if !isPlain(name) || !isPlain(value) {
			// encoding/json sorts the keys of a map, and strings cannot fail.
			text, _ := json.Marshal(id)
			return string(append(b, text...))
		}
		names = append(names, name)
	}
	// Each call of each worker comes here, so what encoding/json would do is done at less cost.
	slices.Sort(names)
	b = append(b, '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":"`...)
		b = append(append(b, id[name]...), '"')
	}
	return string(append(b, '}'))
}

// isPlain reports whether encoding/json writes s as it is.
func isPlain(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			return false
		}
	}
	return true
}

// prefixes yields instance and then each shorter run of its leading components,
// the empty one last.
func prefixes(instance string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(instance) && instance != "" {
			instance = instance[:max(strings.LastIndexByte(instance, '/'), 0)]
		}
	}
}

// suffix returns what follows prefix in instance, which has it.
func suffix(instance, prefix string) string {
	return strings.TrimPrefix(instance[len(prefix):], "/")
}

// Proto returns the platform as a message, in canonical order.
func (p Platform) Proto() *repb.Platform {
	m := &repb.Platform{}
	for _, q := range p.properties {
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: q.name, Value: q.value})
	}
	return m
}

// AppendKey appends the part of a Platform's Key that is one property's.
func AppendKey(b []byte, name, value string) []byte { return property{name, value}.appendKey(b) }
