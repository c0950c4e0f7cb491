package ahead

import (
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

func TestPlatformText(t *testing.T) {
	p := &repb.Platform{Properties: []*repb.Platform_Property{{Name: "a", Value: "1\n2"}, {Name: "b", Value: "x=y"}}}
	if got, want := platformText(p), "\"a\"=\"1\\n2\"\n\"b\"=\"x=y\"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := platformText(nil); got != "" {
		t.Errorf("no platform is %q", got)
	}
}
