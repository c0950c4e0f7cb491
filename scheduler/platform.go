package scheduler

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// maxPlatforms bounds the platforms that are shared; farms have a few.
const maxPlatforms = 1000

// platforms shares what is equal, as most operations and workers have one of a few
// platforms. The zero value is empty.
type platforms struct {
	mu    sync.Mutex
	known map[string]sharedPlatform // guarded by mu; by Key
}

type sharedPlatform struct {
	platform Platform
	message  *repb.Platform
}

// of returns NewPlatform(m), and a message equal to m. Neither must be changed.
func (p *platforms) of(m *repb.Platform) (Platform, *repb.Platform) {
	var buffer [256]byte
	key := buffer[:0]
	for _, x := range m.GetProperties() {
		key = property{x.GetName(), x.GetValue()}.appendKey(key)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Only platforms in canonical order, as REv2 wants them, are found: the same key, the same message.
	if s, ok := p.known[string(key)]; ok && m != nil {
		return s.platform, s.message
	}
	made := NewPlatform(m)
	if made.key == string(key) && m != nil {
		if p.known == nil || len(p.known) >= maxPlatforms {
			p.known = map[string]sharedPlatform{}
		}
		p.known[made.key] = sharedPlatform{made, m}
	}
	return made, m
}

// matched is the part of m that decides where an action runs; m itself if that is all.
func (s *Server) matched(m *repb.Platform) *repb.Platform {
	ignored := func(p *repb.Platform_Property) bool {
		return slices.Contains(s.config.ActionProperties, p.GetName())
	}
	if !slices.ContainsFunc(m.GetProperties(), ignored) {
		return m
	}
	return &repb.Platform{Properties: slices.DeleteFunc(slices.Clone(m.GetProperties()), ignored)}
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
