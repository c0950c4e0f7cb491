package names

import (
	"encoding/json"
	"slices"
	"strings"
)

// WorkerKey returns the canonical form of a worker's identity below an instance name prefix, which
// is also readable: {"host":"a","slot":"0"}, or acme/{"host":"a"} below acme. Keys are unique.
func WorkerKey(prefix string, id map[string]string) string {
	var someNames [8]string
	var buffer [256]byte
	names := someNames[:0]
	b := buffer[:0]
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
	// Each call of each worker comes here, so this replaces encoding/json at less cost.
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
