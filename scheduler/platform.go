package scheduler

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
	var key strings.Builder
	for _, p := range ps {
		key.WriteString(strconv.Quote(p.name))
		key.WriteString(strconv.Quote(p.value))
	}
	return Platform{key: key.String(), properties: ps}
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

// WorkerKey returns the canonical form of a worker's identity, which is also
// readable: {"host":"a","slot":"0"}.
func WorkerKey(id map[string]string) string {
	// encoding/json sorts the keys of a map, and strings cannot fail.
	b, _ := json.Marshal(id)
	return string(b)
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

// hasPrefix reports whether the components of prefix lead those of instance.
func hasPrefix(instance, prefix string) bool {
	rest, ok := strings.CutPrefix(instance, prefix)
	return ok && (prefix == "" || rest == "" || rest[0] == '/')
}

// suffix returns what follows prefix in instance, which has it.
func suffix(instance, prefix string) string {
	return strings.TrimPrefix(instance[len(prefix):], "/")
}
