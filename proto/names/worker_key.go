package names

import (
	"encoding/json"
	"maps"
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

// Machine returns the worker in a key of WorkerKey as patterns match it, without its position and the
// instance name prefix: data=/d,host=a. position is that position; empty if it is the only one. Any
// other text is returned as it is.
func Machine(key string) (machine, position string) {
	text := key[max(strings.IndexByte(key, '{'), 0):]
	if pairs, ok := strings.CutPrefix(text, `{"`); ok && strings.HasSuffix(pairs, `"}`) && !strings.Contains(pairs, `\`) &&
		!strings.Contains(pairs, `",",`) && !strings.HasSuffix(pairs, `":","}`) { // no name or value is a comma
		// Each quotation mark is around a name or a value. A search reads the keys of many workers, so
		// this replaces encoding/json at less cost.
		b := make([]byte, 0, len(text))
		for pair := range strings.SplitSeq(strings.TrimSuffix(pairs, `"}`), `","`) {
			name, value, _ := strings.Cut(pair, `":"`)
			if IsPosition(name) {
				position = value
				continue
			}
			if len(b) > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, name...), '='), value...)
		}
		return string(b), position
	}
	var id map[string]string
	if json.Unmarshal([]byte(text), &id) != nil || id == nil {
		return key, ""
	}
	return pairs(WithoutPosition(id), func(value string) string { return value }), Position(id)
}

// Pairs returns a map as name=value,… in the order of names. That is a valid pattern, and matches the
// map: a comma in a value is written "?".
func Pairs(m map[string]string) string {
	return pairs(m, func(value string) string { return strings.ReplaceAll(value, ",", "?") })
}

func pairs(m map[string]string, shown func(value string) string) string {
	list := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name+"="+shown(m[name]))
	}
	return strings.Join(list, ",")
}
