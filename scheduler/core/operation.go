package core

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// An Operation is what a client asks for. State keeps it and never changes it;
// nor may the caller once it is submitted.
type Operation struct {
	// Name identifies the operation; the caller makes it unique.
	Name string
	// Instance is the client's instance name.
	Instance string
	// Digest is the action's.
	Digest digest.Digest
	// Action is what the worker is given; its timeout is set.
	Action *repb.Action
	// Platform is what a worker must have.
	Platform Platform
	// Private operations are never joined with others of the same action.
	Private bool
	// Priority and Expected order the operations of one invocation: the lowest
	// priority goes first (REv2, ExecutionPolicy), then what is thought to run
	// longest. Priorities also shift the shares of invocations; see package fair.
	Priority int32
	Expected time.Duration
	// User is who asks, Claims are what else is known of him; empty if he has not
	// said who he is.
	User   string
	Claims map[string]string
	// Client tells apart whose operations Config.MaxPerClient counts; empty: nobody's.
	Client string
	// Size says on which size class the action starts.
	Size Size

	// The rest is carried along: who asked, what the worker copies into the result besides, the
	// W3C trace context, and whatever else the caller knows of it. Each may be nil or empty.
	Request   Metadata
	Auxiliary []*anypb.Any
	Trace     map[string]string
	Owner     any
}

// Metadata is what a client says of itself and of what it wants an action for (REv2,
// RequestMetadata), as far as anything depends on it.
//
// Its strings may be parts of the header that they came in: to keep one for longer than the operation, clone it.
type Metadata struct {
	ToolInvocation, Correlated, Mnemonic, Target, Configuration string
	// Encoded is all of it, for the worker; empty if it did not come with a request.
	Encoded string
}

// A Size says on which size class an action starts. The zero Size leaves it on the
// largest, for its own timeout, and what happens there is final.
type Size struct {
	// Class is the one that is wanted. If it has no worker and is not declared the next larger
	// one that has is taken, else the largest.
	Class uint32
	// Timeout is in force on Class; it is shorter than the action's own, or 0 for that. With Hedge the action is
	// not stopped then, but started on the largest class, too, if a worker is idle there at the start.
	Timeout time.Duration
	Hedge   bool
	// Expected is how long the action is thought to run there, 0 if that is not known;
	// Reason is for people.
	Expected time.Duration
	Reason   string
}

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
