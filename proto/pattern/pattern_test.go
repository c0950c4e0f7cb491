package pattern

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/forerunner-build/forerunner/proto/names"
)

func attributes(m map[string]string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := m[name]
		return value, ok
	}
}

func TestPatternMatch(t *testing.T) {
	id := map[string]string{"host": "build-17.example", "slot": "0", "data": "/var/lib/x, y", "name": "größer"}
	for pattern, want := range map[string]bool{
		"host=build-17.example": true,
		"host=build-*":          true,
		"host=*":                true,
		"host=**e":              true,
		"host=*17*example":      true,
		"host=*l*l*":            true,
		"host=build-1?.*":       true,
		"host=build-1?":         false,
		"host=build":            false,
		"host=":                 false,
		"host=*.example?":       false,
		"host=*x*y*":            false,
		"rack=*":                false,
		"host=*,slot=0":         true,
		"host=*,slot=1":         false,
		"data=/var/lib/x? y":    true,
		"data=*x*":              true,
		"name=gr??er":           true,
	} {
		p, err := Parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(attributes(id)); got != want {
			t.Errorf("%s: %v", pattern, got)
		}
		again, err := New(p.Map())
		if err != nil || again.String() != pattern {
			t.Errorf("%s became %s, %v", pattern, again, err)
		}
	}
	if (Pattern{}).Match(attributes(id)) {
		t.Error("the zero pattern matches")
	}
}

// TestOfOperations has names of operations and actions as they are copied from lists and pages.
func TestOfOperations(t *testing.T) {
	hash := strings.Repeat("0123456789abcdef", 4)
	o := attributes(map[string]string{"operation": "operations/1a2b-3c", "action": hash + "/142", "target": "1a2b"})
	for pattern, want := range map[string]bool{
		"operation=operations/1a2b-3c": true, "operation=1a2b-3c": true, "operation=1a2b*": true, "operation=*": true, "operation=?perations*": true,
		"operation=1a2b": false, "operation=": false, "action=" + hash: true, "action=" + hash[:12]: true, "action=" + hash[:11]: false,
		"action=" + hash[:11] + "*": true, "action=" + hash + "/142": true, "action=" + hash + "/14": false, "action=": false, "target=1a2b": true,
	} {
		p, err := Parse(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.OfOperations("operations/").Match(o); got != want {
			t.Errorf("%s: %v", pattern, got)
		}
		if p.String() != pattern {
			t.Errorf("%s became %s", pattern, p)
		}
	}
}

func TestPatternsAreChecked(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "name=value", "host": "name=value", "=x": "name=value", "a=b,": "name=value", "a=b,a=c": "twice",
	} {
		if p, err := Parse(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", pattern, p, err)
		}
	}
	for _, m := range []map[string]string{nil, {}, {"": "x"}} {
		if p, err := New(m); err == nil {
			t.Errorf("%v: %v", m, p)
		}
	}
}

// TestShownWorkers: the text of a worker that lists show is a pattern of workers, and the value of
// worker in patterns of operations.
func TestShownWorkers(t *testing.T) {
	for _, id := range []map[string]string{
		{"host": "a"}, {"data": "/d", "host": "a"}, {"data": "/d,e=f", "host": "a b", "rack": "1"}, {"data": "/größe", "host": ",", "zone": "="},
	} {
		shown := names.Pairs(id)
		p, err := Parse(shown)
		if err != nil || !p.Match(attributes(id)) {
			t.Errorf("%s does not match %v: %v", shown, id, err)
		}
		key := names.WorkerKey("", id)
		machine, _ := names.Machine(key)
		for _, s := range []string{"worker=" + shown, "worker=" + shown + ",target=//x", "target=//x,worker=" + shown + ",platform.a=b"} {
			p, err := Parse(s)
			if err != nil || !p.Match(attributes(map[string]string{"worker": machine, "target": "//x", "platform.a": "b"})) {
				t.Errorf("%s does not match %s: %v", s, machine, err)
			}
		}
	}
	p, err := Parse("worker=data=/d,host=a", "host=b")
	if err != nil || p.Map()["worker"] != "data=/d,host=a" || p.Map()["host"] != "b" {
		t.Errorf("of two arguments is made %v, %v", p, err)
	}
	if p, err := Parse("worker=b-7,host=a"); err != nil || !p.Names("host") {
		t.Errorf("a worker without a name takes what follows: %v, %v", p, err)
	}
}

// TestPatternIsQuick has a pattern that takes a careless matcher for ever.
func TestPatternIsQuick(t *testing.T) {
	id := map[string]string{"x": strings.Repeat("a", 1<<14)}
	p, err := New(map[string]string{"x": strings.Repeat("a*", 50) + "b"})
	if err != nil || p.Match(attributes(id)) {
		t.Errorf("%v, %v", p, err)
	}
}

// FuzzPattern compares patterns with regular expressions.
func FuzzPattern(f *testing.F) {
	for _, text := range []string{"host=build-17", "host=*l*l?", "host=,slot=*", "a=b,a=c", "=x", "a=**?*", "größe=?"} {
		f.Add(text, "build-17")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		p, err := Parse(text)
		if err != nil || !utf8.ValidString(text) || !utf8.ValidString(value) {
			return
		}
		again, err := Parse(p.String())
		if err != nil || again.String() != p.String() || len(again.Map()) != len(p.Map()) {
			t.Fatalf("%q became %q, %v", p, again, err)
		}
		quick := strings.NewReplacer(`\*`, ".*", `\?`, ".")
		want := true
		for _, glob := range p.Map() {
			want = want && regexp.MustCompile(`(?s)^`+quick.Replace(regexp.QuoteMeta(glob))+`$`).MatchString(value)
		}
		if got := p.Match(func(string) (string, bool) { return value, true }); got != want {
			t.Errorf("%q matches %q: %v, want %v", text, value, got, want)
		}
	})
}

func TestFits(t *testing.T) {
	stages := []string{"queued", "executing"}
	for asked, want := range map[string]bool{"host=x": true, "stage=queued": true, "stage=*": true, "stage=e*g,host=x": true, "stage=bogus": false, "stage=": false} {
		p, err := Parse(asked)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Fits("stage", stages); got != want {
			t.Errorf("%s: %t, want %t", asked, got, want)
		}
	}
}
