package scheduler

import (
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// sizeOf returns a choice for an action with a timeout of its own.
func sizeOf(c sizeclass.Choice, own time.Duration) core.Size {
	s := core.Size{Class: c.Class, Expected: c.Expected, Reason: c.Reason}
	switch {
	case c.Hedge > 0:
		s.Timeout, s.Hedge = c.Hedge, true
	case c.Timeout < own:
		s.Timeout = c.Timeout
	}
	return s
}

// sizesOf returns the classes of the core as those among which is chosen.
func sizesOf(classes []core.SizeClass) []sizeclass.Class {
	sizes := make([]sizeclass.Class, len(classes))
	for i, c := range classes {
		sizes[i] = sizeclass.Class(c)
	}
	return sizes
}

// outOfMemory reports whether a response tells of a run that failed for want of memory.
func outOfMemory(resp *repb.ExecuteResponse) bool {
	if resp.GetResult().GetExitCode() == 0 && resp.GetStatus().GetCode() == 0 {
		return false
	}
	_, outcome, ok := sizeclass.ResultOf(resp)
	return ok && outcome == sizeclass.OutOfMemory
}

// sized returns what a worker is given to run: the action with the timeout in force, and what goes into the
// metadata of its result.
func sized(r *core.Reply) (*repb.Action, []*anypb.Any) {
	action, also := r.Run.Action, auxiliary(r.Run)
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
