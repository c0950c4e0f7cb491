package operation

import (
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// Properties that say how to run an action do not affect where it runs.
func TestActionPropertiesAreNotMatched(t *testing.T) {
	platform := func(pairs ...string) *repb.Platform {
		p := &repb.Platform{}
		for i := 0; i < len(pairs); i += 2 {
			p.Properties = append(p.Properties, &repb.Platform_Property{Name: pairs[i], Value: pairs[i+1]})
		}
		return p
	}
	s := &Platforms{ignored: []string{"network", "tool"}}
	asked := platform("arch", "arm", "network", "off", "tool", "x")
	if got, want := request.NewPlatform(s.Matched(asked)).String(), "{arch=arm}"; got != want {
		t.Errorf("matched %s, want %s", got, want)
	}
	if len(asked.GetProperties()) != 3 {
		t.Errorf("the action's own platform is %v now", asked)
	}
	plain := platform("arch", "arm")
	if s.Matched(plain) != plain || s.Matched(nil) != nil {
		t.Error("a platform of which all counts was copied")
	}
	if got := request.NewPlatform((&Platforms{}).Matched(asked)); len(got.Proto().GetProperties()) != 3 {
		t.Errorf("without ActionProperties: %s", got)
	}
}
