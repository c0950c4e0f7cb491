package core

import (
	"slices"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	op := &Operation{
		Instance: "main/x", User: "ann", Claims: map[string]string{"team": "web"},
		Platform: NewPlatform(parsePlatform("OS=linux,image=debian")),
		Request: Metadata{
			ToolInvocation: "inv", Correlated: "build", Mnemonic: "GoCompile",
			Target: "//a:b", Configuration: "fast",
		},
	}
	for _, test := range []struct {
		level Level
		want  string
	}{
		{Level{Key: KeyInstance}, "main/x"},
		{Level{Key: KeyToolInvocation}, "inv"},
		{Level{Key: KeyCorrelated}, "build"},
		{Level{Key: KeyMnemonic}, "GoCompile"},
		{Level{Key: KeyTarget}, "//a:b"},
		{Level{Key: KeyConfiguration}, "fast"},
		{Level{Key: KeyUser}, "ann"},
		{Level{Key: KeyClaim, Name: "team"}, "web"},
		{Level{Key: KeyClaim, Name: "none"}, ""},
		{Level{Key: KeyProperty, Name: "image"}, "debian"},
		{Level{Key: KeyProperty, Name: "none"}, ""},
		{Level{Key: KeyConstant, Name: "all"}, "all"},
	} {
		if err := test.level.Validate(); err != nil {
			t.Error(err)
		}
		if got := appendKeys(nil, []Level{test.level}, op); !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s %s is %q, want %q", test.level.Key, test.level.Name, got, test.want)
		}
		if got := test.level.of(&Operation{}); test.level.Key != KeyConstant && got != "" {
			t.Errorf("%s of nothing is %q", test.level.Key, got)
		}
	}
}

// TestLongKeys sees that keys that clients choose take little memory, and that
// different ones stay so.
func TestLongKeys(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	a, b := bounded(long+"a"), bounded(long+"b")
	if a == b || len(a) > longestKey || !strings.HasPrefix(a, "éé") {
		t.Errorf("1 MiB is cut to %q and %q", a, b)
	}
	for _, n := range []int{0, 1, longestKey} {
		if key := strings.Repeat("x", n); bounded(key) != key {
			t.Errorf("a key of %d bytes is changed", n)
		}
	}
}

func TestLevelsAreChecked(t *testing.T) {
	for _, test := range []struct {
		queue QueueConfig
		want  string
	}{
		{QueueConfig{Levels: []Level{{Key: "users"}}}, `level 1: key "users" is none of`},
		{QueueConfig{Prefix: "acme/"}, `invalid instance name "acme/"`},
		{QueueConfig{Levels: []Level{{Key: KeyUser}, {Key: KeyClaim}}}, "level 2: key claim needs a name"},
		{QueueConfig{Levels: []Level{{Key: KeyUser, Name: "x"}}}, "key user takes no name"},
		{QueueConfig{Levels: []Level{{Key: KeyUser, Stickiness: -1}}}, "stickiness is negative"},
		{QueueConfig{Levels: []Level{{Key: KeyUser, Weights: map[string]float64{"a": 0}}}}, `weight of "a" is 0`},
		{QueueConfig{Levels: make([]Level, 17)}, "17 levels, at most 16"},
	} {
		_, err := NewState(Config{Queues: []QueueConfig{{}, test.queue}})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Queues[1]") {
			t.Errorf("%+v: %v, want %s", test.queue, err, test.want)
		}
	}
}

func TestLevelsOfAPool(t *testing.T) {
	c := Config{Queues: []QueueConfig{
		{Prefix: "main", Platform: map[string]string{"OS": "linux"}, Levels: []Level{{Key: KeyUser}}},
		{Prefix: "main", Levels: []Level{}},
		{Platform: map[string]string{"OS": "linux", "gpu": "1"}, Levels: []Level{{Key: KeyTarget}}},
	}}
	for _, test := range []struct{ prefix, platform, want string }{
		{"main", "OS=linux,gpu=1", "user"},
		{"main/x", "OS=linux", "user"},
		{"main", "OS=mac", ""},
		{"mainly", "OS=linux", "instance_name correlated_invocations_id tool_invocation_id"},
		{"", "OS=linux,gpu=1,x=y", "target_id"},
	} {
		var got []string
		for _, l := range c.levels(test.prefix, NewPlatform(parsePlatform(test.platform))) {
			got = append(got, string(l.Key))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s %s has levels %q, want %q", test.prefix, test.platform, got, test.want)
		}
	}
}
