package scheduler

import (
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/operation"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// outOfMemory reports whether a response is of a run that failed for lack of memory.
func outOfMemory(resp *repb.ExecuteResponse) bool {
	if resp.GetResult().GetExitCode() == 0 && resp.GetStatus().GetCode() == 0 {
		return false
	}
	_, outcome, ok := sizeclass.ResultOf(resp)
	return ok && outcome == sizeclass.OutOfMemory
}

// sized returns the action for a worker, with the timeout in force, and the additions to the
// metadata of its result.
func sized(r *event.Reply) (*repb.Action, []*anypb.Any) {
	action, also := r.Run.Action, operation.Auxiliary(r.Run)
	if r.SizeAttempt == 0 {
		return action, also
	}
	timeout := action.GetTimeout().AsDuration()
	if r.Timeout > 0 && r.Timeout < timeout {
		timeout = r.Timeout
		action = proto.CloneOf(action)
		action.Timeout = durationpb.New(timeout)
	}
	placement := sizeclass.Choice{Class: r.SizeClass, Expected: r.Expected, Timeout: timeout, Reason: r.SizeReason}
	packed, err := anypb.New(placement.Placement(r.SizeAttempt))
	if err != nil {
		return action, also // it is for people only
	}
	return action, append(slices.Clip(also), packed)
}
