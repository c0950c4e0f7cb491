package core_test

import (
	"fmt"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A client asks for an action, and the worker that calls gets it. Whoever calls Step sends the
// replies, and calls it again with event.Tick at Out.Next.
func ExampleState_Step() {
	state, err := core.NewState(tuning.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Unix(1_800_000_000, 0)
	action := digest.Of(digest.SHA256, []byte("an Action"))
	state.Step(now, event.Submit{Operation: &request.Operation{Name: "operation 1", Digest: action, Action: &repb.Action{}}})

	worker := event.Report{Call: 1, Worker: "host=a", ID: map[string]string{"host": "a"}, Doing: event.Idle}
	out := state.Step(now, &worker)
	for _, r := range out.Replies {
		fmt.Println("call", r.Call, "executes", r.Run.Name, r.Do == event.Execute)
	}

	worker.Call, worker.Doing, worker.Action = 2, event.Completed, action
	worker.Response = &repb.ExecuteResponse{Result: &repb.ActionResult{}}
	out = state.Step(now.Add(time.Minute), &worker)
	for _, n := range out.Notices {
		fmt.Println(n.Name, "has ended:", n.Response != nil)
	}
	// Output:
	// call 1 executes operation 1 true
	// operation 1 has ended: true
}
