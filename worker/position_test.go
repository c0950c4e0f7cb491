package worker

import (
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/pipeline"
)

// TestReportOfEndingAction: a position whose action ends while it makes its report never asks for
// another action without a permit for it. The slot may be kept by another position, which waits for
// an action as long as there is none, and then both would wait for ever.
func TestReportOfEndingAction(t *testing.T) {
	inStage := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "in_stage"}, []string{"stage"})
	w := &Worker{pipeline: pipeline.New(make([]*runner.Launcher, 1), 0, 1, inStage), health: new(health.Monitor)}
	w.pipeline.TryEnter() // by the other position
	p := &position{w: w}
	ends := &task{desired: &remoteworker.DesiredState_Executing{}, changed: make(chan struct{}, 1)}
	ends.enter(runningCommand())
	state := ends.current()
	full := p.full(state, false)
	ends.enter(&remoteworker.CurrentState_Executing{
		ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: &repb.ExecuteResponse{}},
	})
	if r := p.report(ends, state, full); r.GetCurrentState().GetExecuting().GetCompleted() != nil && !r.GetPreferBeingIdle() {
		t.Errorf("it asks for another action without a permit: %v", r)
	}
	state = ends.current()
	r := p.report(ends, state, p.full(state, false))
	if r.GetCurrentState().GetExecuting().GetCompleted() == nil || !r.GetPreferBeingIdle() {
		t.Errorf("the next report is %v", r)
	}
}
