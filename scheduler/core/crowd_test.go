package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// crowd is how many operations want one action here. Were each event to look at all of them, a test
// would take minutes.
const crowd = 20_000

// submitCrowd has a crowd ask for one action, which runs once if they are not private, and returns
// their names.
func submitCrowd(t *testing.T, state *State, private bool) (names []string, d digest.Digest) {
	t.Helper()
	d = digest.Of(digest.SHA256, []byte("wanted"))
	for i := range crowd {
		name := fmt.Sprint("op", i)
		op := &request.Operation{Name: name, Digest: d, Action: &repb.Action{}, Private: private}
		if err := state.Step(epoch, event.Submit{Operation: op}).Err; err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names, d
}

// TestCrowdLeaves has the client of many operations of one run die: all of them leave in one event,
// the latest first.
func TestCrowdLeaves(t *testing.T) {
	state := must(NewState(tuning.Config{}))
	state.Step(epoch, &event.Report{Call: 1, Worker: "w", Doing: event.Idle})
	names, d := submitCrowd(t, state, false)
	if state.View().Counts().Executing != 1 || state.View().Tally().Joined != crowd-1 {
		t.Fatalf("%+v, %+v", state.View().Counts(), state.View().Tally())
	}
	for _, name := range slices.Backward(names) {
		state.Step(epoch, event.Detach{Name: name})
	}
	now := epoch
	for range 11 { // a worker that does not call would be lost
		now = now.Add(5 * time.Second)
		state.Step(now, &event.Report{Call: 2, Worker: "w", Doing: event.Executing, Action: d})
	}
	for range crowd {
		if next := state.Step(epoch.Add(state.Config().ClientGrace),
			event.Tick{}).NextTick; next.After(epoch.Add(state.Config().ClientGrace)) {
			break
		}
	}
	if n := state.View().Counts(); n.Executing != 0 {
		t.Errorf("%+v", n)
	}
	if problem := state.Check(); problem != "" {
		t.Error(problem)
	}
}

// TestCrowdRunsAlone has many private operations of one action, which come, run and go one by one.
func TestCrowdRunsAlone(t *testing.T) {
	state := must(NewState(tuning.Config{}))
	state.Step(epoch, &event.Report{Call: 1, Worker: "w", Doing: event.Idle})
	names, d := submitCrowd(t, state, true)
	if n := state.View().Counts(); n.Executing != 1 || n.Queued != crowd-1 {
		t.Fatalf("%+v", n)
	}
	// Some end, and another worker runs one that waits.
	for i := range 10 {
		result := &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: int32(i)}}
		state.Step(epoch, &event.Report{
			Call: uint64(2*i + 2), Worker: "w", Doing: event.Completed,
			Action: d, Response: result,
		})
		state.Step(epoch, &event.Report{Call: uint64(2*i + 3), Worker: "w", Doing: event.Idle})
	}
	state.Step(epoch, &event.Report{Call: 100, Worker: "other", Doing: event.Executing, Action: d})
	if n := state.View().Counts(); n.Executing != 2 || n.Queued != crowd-12 {
		t.Fatalf("%+v", n)
	}
	// Those that others share do not look at them.
	for _, name := range []string{"first", "second"} {
		op := &request.Operation{Name: name, Digest: d, Action: &repb.Action{}}
		if err := state.Step(epoch, event.Submit{Operation: op}).Err; err != nil {
			t.Fatal(err)
		}
	}
	if n := state.View().Tally().Joined; n != 1 {
		t.Errorf("%d operations have joined another one", n)
	}
	for i := range crowd / 2 {
		state.Step(epoch, event.Cancel{Name: names[i]})
		state.Step(epoch, event.Cancel{Name: names[crowd-1-i]})
	}
	if n := state.View().Counts(); n.Executing != 0 || n.Queued != 1 {
		t.Errorf("%+v", n)
	}
	if problem := state.Check(); problem != "" {
		t.Error(problem)
	}
}

// TestFlights compares the tasks of two actions with slices.
func TestFlights(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	f := flights{}
	want := map[request.Key][]*task{}
	keyOf := func(n int) request.Key { return request.KeyOf(digest.Of(digest.SHA256, make([]byte, n))) }
	for range 1000 {
		a := keyOf(1 + random.IntN(2))
		if i := random.IntN(6); i < len(want[a]) {
			f.remove(want[a][i])
			want[a] = slices.Delete(want[a], i, i+1)
		} else {
			one := &task{action: a}
			f.add(one)
			want[a] = append(want[a], one)
		}
		got, few := slices.Collect(f.of(a)), slices.Collect(f.few(a))
		if !slices.Equal(got, want[a]) || !slices.Equal(few, got) || (f[a] == nil) != (len(got) == 0) {
			t.Fatalf("%v and %v, want %v", got, few, want[a])
		}
	}
	a := keyOf(3)
	for range maxLook + 10 {
		f.add(&task{action: a})
	}
	if few := slices.Collect(f.few(a)); len(few) != maxLook || few[0] != f[a] {
		t.Errorf("looked at %d of %d tasks", len(few), maxLook+10)
	}
}
