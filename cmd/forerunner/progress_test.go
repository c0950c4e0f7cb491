package main

import (
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/proto/actionstats"
)

// TestEnded has results that ran, were in the action cache, and were spared.
func TestEnded(t *testing.T) {
	reused, err := anypb.New(&actionstats.Reused{Scheduler: true})
	if err != nil {
		t.Fatal(err)
	}
	m := &repb.ExecutedActionMetadata{Worker: "one", AuxiliaryMetadata: []*anypb.Any{reused}}
	for _, c := range []struct {
		outcome client.Outcome
		want    string
	}{
		{client.Outcome{}, "ran for 0"},
		{client.Outcome{Cached: true}, "the result was in the action cache"},
		{client.Outcome{Cached: true, Message: "spared"}, "the run was skipped"},
	} {
		var out strings.Builder
		c.outcome.Result = &repb.ActionResult{ExecutionMetadata: m}
		(&progress{out: &out}).ended(&c.outcome)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%+v: %q lacks %q", c.outcome.Message, out.String(), c.want)
		}
	}
}
