package live

import (
	"errors"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

// TestOutputOfALostWorker has another worker run the action after it: what the first one's command printed does
// not count.
func TestOutputOfALostWorker(t *testing.T) {
	v := &view{registry: &Registry{}, watch: &live.Watch{}}
	see := func(attempts int, worker string) error {
		return v.follow(&core.Status{Stage: repb.ExecutionStage_EXECUTING, Attempts: attempts, Worker: worker})
	}
	if err := errors.Join(see(1, "a"), see(1, "a"), see(2, "b")); err != nil {
		t.Error(err)
	}
	v.watch.Offset = 1
	if err := errors.Join(see(2, "b"), v.follow(&core.Status{Stage: repb.ExecutionStage_QUEUED})); err != nil {
		t.Error(err)
	}
	if err := see(3, "b"); !names.IsStartedOver(err) {
		t.Errorf("the reader is told %v", err)
	}
}
