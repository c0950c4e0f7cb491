package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/history"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/finished"
)

// TestCallThatIsGoneSaysNothing has a cancelled call of a worker arrive after its next call.
func TestCallThatIsGoneSaysNothing(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("x")
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		s.at(repb.ExecutionStage_QUEUED)
		w := f.worker("w")
		w.idle()
		s.at(repb.ExecutionStage_EXECUTING)
		w.running(d)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		idle := &remoteworker.SynchronizeRequest{
			WorkerId:     map[string]string{"host": "w"},
			CurrentState: &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}},
		}
		if _, err := f.server.queue.Synchronize(gone, idle); status.Code(err) != codes.Canceled {
			t.Errorf("the call that is gone: %v", err)
		}
		if resp := w.running(d); resp.GetDesiredState() != nil {
			t.Errorf("the action does not go on: %v", resp)
		}
		if taken := f.logs.FilterMessageSnippet("run taken from its worker").All(); len(taken) > 0 {
			t.Errorf("the action was taken: %v", taken)
		}
		w.completed(d, success)
		s.done()
	})
}

// TestOperationsWithoutClientsHaveRecords has the clients of two operations leave, of which one runs
// and one waits: both operations have a record with that end, and so has one whose client stays.
func TestOperationsWithoutClientsHaveRecords(t *testing.T) {
	var store *history.Store
	inFarmWith(t, func() ServerOptions {
		store = must(history.Open("", history.Options{}))
		return ServerOptions{Finished: finished.New(finished.Options{Store: store})}
	}, func(t *testing.T, f *farm) {
		ctx, leave := context.WithCancel(t.Context())
		w := f.worker("w")
		runs := f.storage.action("runs")
		first := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: runs})
		running := first.at(repb.ExecutionStage_QUEUED).GetName()
		w.idle()
		first.at(repb.ExecutionStage_EXECUTING)
		w.running(runs)
		second := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: f.storage.action("waits")})
		waiting := second.at(repb.ExecutionStage_QUEUED).GetName()
		leave()
		time.Sleep(2 * f.server.requests.Config().ClientGrace)
		stays := f.storage.action("stays")
		third := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: stays})
		ended := third.at(repb.ExecutionStage_QUEUED).GetName()
		w = f.worker("another")
		w.idle()
		w.completed(stays, success)
		third.done()
		found, _, err := store.Find(t.Context(), history.Query{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]historypb.Outcome{}
		for _, r := range found {
			got[r.GetOperation()] = r.GetOutcome()
			if r.GetOperation() == running && (r.GetWorker() == "" || r.GetAttempts() != 1) {
				t.Errorf("the record of the one that ran: %v", r)
			}
		}
		want := map[string]historypb.Outcome{
			running: historypb.Outcome_CANCELLED, waiting: historypb.Outcome_CANCELLED, ended: historypb.Outcome_SUCCEEDED,
		}
		if len(found) != 3 || !maps.Equal(got, want) {
			t.Errorf("records of %v, want %v", got, want)
		}
	})
}

// TestTakenRunsAreTold has a worker drop one action, and an operator kill another one.
func TestTakenRunsAreTold(t *testing.T) {
	registry := prometheus.NewRegistry()
	inFarm(t, ServerOptions{Metrics: registry}, func(t *testing.T, f *farm) {
		d := f.storage.action("x")
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		name := s.at(repb.ExecutionStage_QUEUED).GetName()
		w := f.worker("w")
		w.idle()
		w.running(d)
		w.idle()
		f.server.engine.Step(func(t engine.Turn) event.Out { return t.Feed(core.Kill{Names: []string{name}}) })
		var told []string
		for _, l := range f.logs.FilterMessageSnippet("run taken from its worker").All() {
			told = append(told, fmt.Sprint(l.Level, " ", l.ContextMap()["reason"]))
		}
		if want := []string{"warn its worker no longer reports it", "info an operator has killed the operation"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		counted := map[string]float64{}
		for _, m := range must(registry.Gather()) {
			for _, v := range m.GetMetric() {
				if n := v.GetCounter().GetValue(); m.GetName() == "forerunner_scheduler_returned_runs_total" && n > 0 {
					counted[v.GetLabel()[0].GetValue()] = n
				}
			}
		}
		if want := map[string]float64{event.Dropped.Label(): 1, event.Killed.Label(): 1}; !maps.Equal(counted, want) {
			t.Errorf("counted %v, want %v", counted, want)
		}
	})
}
