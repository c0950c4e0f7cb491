package worker

import (
	"testing"
	"time"

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
	for range 5 {
		ends := &task{desired: &remoteworker.DesiredState_Executing{}, changed: make(chan struct{}, 1)}
		ends.enter(runningCommand())
		// The report waits for its first look at the action, and the end of the action waits for
		// the report. A mutex that a goroutine has waited for too long is passed on in order, so
		// the end comes right after that look.
		ends.mu.Lock()
		reported, ended := make(chan *remoteworker.SynchronizeRequest, 1), make(chan struct{})
		go func() { reported <- p.report(ends, false) }()
		time.Sleep(3 * time.Millisecond)
		go func() {
			ends.enter(&remoteworker.CurrentState_Executing{
				ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: &repb.ExecuteResponse{}},
			})
			close(ended)
		}()
		time.Sleep(3 * time.Millisecond)
		ends.mu.Unlock()
		ends.mu.Lock()
		time.Sleep(3 * time.Millisecond)
		ends.mu.Unlock()
		<-ended
		for _, r := range []*remoteworker.SynchronizeRequest{<-reported, p.report(ends, false)} {
			if r.GetCurrentState().GetExecuting().GetCompleted() != nil && !r.GetPreferBeingIdle() {
				t.Fatalf("it asks for another action without a permit: %v", r)
			}
		}
	}
}
