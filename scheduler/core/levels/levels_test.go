package levels

import (
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

func TestKeys(t *testing.T) {
	op := &request.Operation{
		Instance: "main/x", User: "ann", Claims: map[string]string{"team": "web"},
		Platform: request.NewPlatform(&repb.Platform{Properties: []*repb.Platform_Property{
			{Name: "OS", Value: "linux"}, {Name: "image", Value: "debian"},
		}}),
		Request: request.Metadata{
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
		if got := AppendKeys(nil, []Level{test.level}, op); !slices.Equal(got, []string{test.want}) {
			t.Errorf("%s %s is %q, want %q", test.level.Key, test.level.Name, got, test.want)
		}
		if got := test.level.Of(&request.Operation{}); test.level.Key != KeyConstant && got != "" {
			t.Errorf("%s of nothing is %q", test.level.Key, got)
		}
	}
}

// TestLongKeys sees that keys that clients choose take little memory, and that
// different ones stay so.
func TestLongKeys(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	a, b := Bounded(long+"a"), Bounded(long+"b")
	if a == b || len(a) > LongestKey || !strings.HasPrefix(a, "éé") {
		t.Errorf("1 MiB is cut to %q and %q", a, b)
	}
	for _, n := range []int{0, 1, LongestKey} {
		if key := strings.Repeat("x", n); Bounded(key) != key {
			t.Errorf("a key of %d bytes is changed", n)
		}
	}
}
