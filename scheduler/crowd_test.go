package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// crowd is how many operations want one action here. Were each event to look at all of them, a test would take minutes.
const crowd = 20_000

// submitCrowd has a crowd ask for one action, which runs once if they are not private, and returns their names.
func submitCrowd(t *testing.T, state *State, private bool) (names []string, d digest.Digest) {
	t.Helper()
	d = digest.Of(digest.SHA256, []byte("wanted"))
	for i := range crowd {
		name := fmt.Sprint("op", i)
		if _, err := state.Submit(epoch, &Operation{Name: name, Digest: d, Action: &repb.Action{}, Private: private}); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names, d
}

// TestCrowdLeaves has the client of many operations of one run die: all of them leave in one event, the latest first.
func TestCrowdLeaves(t *testing.T) {
	state := must(NewState(Config{}))
	state.Sync(epoch, Report{Call: 1, Worker: "w", Doing: Idle})
	names, d := submitCrowd(t, state, false)
	if state.Counts().Executing != 1 || state.Tally().Joined != crowd-1 {
		t.Fatalf("%+v, %+v", state.Counts(), state.Tally())
	}
	for _, name := range slices.Backward(names) {
		state.Detach(epoch, name)
	}
	now := epoch
	for range 11 { // a worker that does not call would be lost
		now = now.Add(5 * time.Second)
		state.Sync(now, Report{Call: 2, Worker: "w", Doing: Executing, Action: d})
	}
	state.Tick(epoch.Add(state.Config().ClientGrace))
	if n := state.Counts(); n.Executing != 0 {
		t.Errorf("%+v", n)
	}
	if problem := state.check(); problem != "" {
		t.Error(problem)
	}
}
