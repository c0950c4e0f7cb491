package scheduler

import (
	"encoding/json"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// What says how an action is run does not decide where.
func TestActionPropertiesAreNotMatched(t *testing.T) {
	platform := func(pairs ...string) *repb.Platform {
		p := &repb.Platform{}
		for i := 0; i < len(pairs); i += 2 {
			p.Properties = append(p.Properties, &repb.Platform_Property{Name: pairs[i], Value: pairs[i+1]})
		}
		return p
	}
	s := &Server{config: Config{ActionProperties: []string{"network", "tool"}}}
	asked := platform("arch", "arm", "network", "off", "tool", "x")
	if got, want := NewPlatform(s.matched(asked)).String(), "{arch=arm}"; got != want {
		t.Errorf("matched %s, want %s", got, want)
	}
	if len(asked.GetProperties()) != 3 {
		t.Errorf("the action's own platform is %v now", asked)
	}
	plain := platform("arch", "arm")
	if s.matched(plain) != plain || s.matched(nil) != nil {
		t.Error("a platform of which all counts was copied")
	}
	if got := NewPlatform((&Server{}).matched(asked)); len(got.properties) != 3 {
		t.Errorf("without ActionProperties: %s", got)
	}
}

// FuzzWorkerKey holds WorkerKey to what encoding/json makes: operators' patterns and recordings have it.
func FuzzWorkerKey(f *testing.F) {
	f.Add("host", "a", "slot", "0")
	f.Add("b", `"`, "a", `\`)
	f.Add("<", "&", "\u2028", "\xff")
	f.Add("", "", "name", "\x7f\n")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		id := map[string]string{name1: value1, name2: value2, "pool": "a b"}
		want, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := WorkerKey("", id); got != string(want) {
			t.Errorf("key %s, want %s", got, want)
		}
		if got := WorkerKey("acme/web", id); got != "acme/web/"+string(want) {
			t.Errorf("key below a prefix: %s", got)
		}
	})
}
