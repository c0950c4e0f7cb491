package pattern

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Pattern selects objects by their attributes, for example workers by their identity: it matches
// objects that have each of its names with a value that fits. In values "*" stands for any text,
// "?" for any one character. The zero Pattern matches nothing. Patterns are equal if their Strings
// are.
type Pattern struct {
	names, values []string // in the order of names
}

// New makes a Pattern from names and values. A Pattern without names is an error: to select
// everything, write that, as in host=*.
func New(m map[string]string) (Pattern, error) {
	if len(m) == 0 {
		return Pattern{}, errors.New("the pattern is empty: to match everything, use host=* or operation=*")
	}
	p := Pattern{names: slices.Sorted(maps.Keys(m))}
	for _, n := range p.names {
		if n == "" {
			return Pattern{}, errors.New("the pattern has an empty name")
		}
		p.values = append(p.values, m[n])
	}
	return p, nil
}

// workerName is the name of the attribute of operations whose value lists show as a pattern.
const workerName = "worker"

// OperationAttributes are the names that patterns of operations may use, besides platform.NAME for
// each property.
func OperationAttributes() []string {
	return []string{
		"action", "client", "correlated", "instance", "invocation",
		"mnemonic", "operation", "stage", "target", "user", workerName,
	}
}

// canFollowWorker reports whether a name is one of operations or builds, and not of workers.
func canFollowWorker(name string) bool {
	return name == "command" || strings.HasPrefix(name, "platform.") || slices.Contains(OperationAttributes(), name)
}

// Parse parses the form of String: name=value, separated by commas, or given one by one. A worker may
// be given as lists show it: worker=data=/d,host=a has one name.
func Parse(args ...string) (Pattern, error) {
	m := map[string]string{}
	for _, s := range args {
		last := ""
		for part := range strings.SplitSeq(s, ",") {
			name, value, ok := strings.Cut(part, "=")
			if !ok || name == "" {
				return Pattern{}, fmt.Errorf("pattern %q: %q is not of the form name=value", s, part)
			}
			if last == workerName && strings.Contains(m[last], "=") && !canFollowWorker(name) {
				m[last] += "," + part
				continue
			}
			if _, twice := m[name]; twice {
				return Pattern{}, fmt.Errorf("pattern %q has %s twice", strings.Join(args, ","), name)
			}
			m[name], last = value, name
		}
	}
	return New(m)
}

// String returns name=value,…; a comma in a value is written "?".
func (p Pattern) String() string {
	parts := make([]string, len(p.names))
	for i, n := range p.names {
		parts[i] = n + "=" + strings.ReplaceAll(p.values[i], ",", "?")
	}
	return strings.Join(parts, ",")
}

// leastHash is the minimum number of digits of a hash that stand for the whole, as lists show it.
const leastHash = 12

// OfOperations returns the Pattern with the values of operation and action as the names of
// operations and actions begin: an operation may lack prefix, an action its size, and all of its
// hash but the first twelve digits.
func (p Pattern) OfOperations(prefix string) Pattern {
	p.values = slices.Clone(p.values)
	for i, v := range p.values {
		switch name := p.names[i]; {
		case name == "operation" && !strings.HasPrefix(v, prefix) && strings.Trim(v[:min(len(v), 1)], "*?") != "":
			p.values[i] = prefix + v
		case name == "action" && len(v) >= leastHash && !strings.ContainsAny(v, "/*?"):
			p.values[i] = v + "*"
		}
	}
	return p
}

// Names reports whether the pattern has a name.
func (p Pattern) Names(name string) bool { return slices.Contains(p.names, name) }

// Exactly returns the one value of a name that fits the pattern; false: there may be several, or
// the pattern does not name it.
func (p Pattern) Exactly(name string) (value string, ok bool) {
	i := slices.Index(p.names, name)
	if i < 0 || strings.ContainsAny(p.values[i], "*?") {
		return "", false
	}
	return p.values[i], true
}

// Fits reports whether one of the values fits what the pattern says of a name, if it does.
func (p Pattern) Fits(name string, values []string) bool {
	i := slices.Index(p.names, name)
	return i < 0 || slices.ContainsFunc(values, func(v string) bool { return fits([]rune(v), []rune(p.values[i])) })
}

// Map returns the names with their values.
func (p Pattern) Map() map[string]string {
	m := make(map[string]string, len(p.names))
	for i, n := range p.names {
		m[n] = p.values[i]
	}
	return m
}

// MarshalJSON writes the names with their values.
func (p Pattern) MarshalJSON() ([]byte, error) { return json.Marshal(p.Map()) }

// UnmarshalJSON undoes MarshalJSON.
func (p *Pattern) UnmarshalJSON(b []byte) error {
	var m map[string]string
	err := json.Unmarshal(b, &m)
	if err == nil && len(m) == 0 {
		*p = Pattern{}
	} else if err == nil {
		*p, err = New(m)
	}
	return err
}

// Match reports whether the pattern matches an object with these attributes.
func (p Pattern) Match(attribute func(name string) (string, bool)) bool {
	for i, n := range p.names {
		value, ok := attribute(n)
		if !ok || !fits([]rune(value), []rune(p.values[i])) {
			return false
		}
	}
	return len(p.names) > 0
}

// fits reports whether all of s fits the glob.
func fits(s, glob []rune) bool {
	// star is the place after the last "*", from where to go on when what follows
	// did not fit; tried is how much of s that star has taken.
	i, j, star, tried := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case j < len(glob) && glob[j] == '*':
			j++
			star, tried = j, i
		case j < len(glob) && (glob[j] == '?' || glob[j] == s[i]):
			i, j = i+1, j+1
		case star >= 0:
			tried++
			i, j = tried, star
		default:
			return false
		}
	}
	return strings.Trim(string(glob[j:]), "*") == ""
}
