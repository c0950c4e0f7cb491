package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// A pagedWorkers has two workers, one on each page, and one that was lost.
type pagedWorkers struct{ admin.SchedulerClient }

func (pagedWorkers) ListWorkers(
	_ context.Context, req *admin.ListWorkersRequest, _ ...grpc.CallOption,
) (*admin.ListWorkersResponse, error) {
	worker := func(host string) *admin.Worker { return &admin.Worker{Identity: map[string]string{"host": host}} }
	resp := &admin.ListWorkersResponse{
		Lost:   []*admin.LostWorker{{Identity: map[string]string{"host": "gone"}}},
		Drains: []*admin.ActiveDrain{{Pattern: &admin.Pattern{Attributes: map[string]string{"host": "old"}}}},
	}
	if req.GetPageToken() == "" {
		resp.Workers, resp.NextPageToken = []*admin.Worker{worker("a")}, "more"
	} else {
		resp.Workers = []*admin.Worker{worker("b")}
	}
	return resp, nil
}

func TestAllWorkersAreListed(t *testing.T) {
	list, err := (&adminCall{SchedulerClient: pagedWorkers{}}).workers(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.GetWorkers()) != 2 || len(list.GetLost()) != 1 || len(list.GetDrains()) != 1 || list.GetNextPageToken() != "" {
		t.Errorf("listed: %v", list)
	}
}

// TestQueueOfRestingWorkers has workers that take nothing for now only, which are not about to leave.
func TestQueueOfRestingWorkers(t *testing.T) {
	var out strings.Builder
	err := (&adminCall{out: &out}).printQueues(&admin.ListQueuesResponse{Queues: []*admin.Queue{
		{SizeClass: 1, Workers: 8, Idle: 1, Executing: 4, Draining: 3, Resting: 2},
	}})
	want := `QUEUE  CLASS  WORKERS  IDLE  DRAINING  RUNNING  QUEUED  OLDEST
-      1      8        1     1         4        0       -
`
	if err != nil || out.String() != want {
		t.Errorf("error %v, printed\n%s", err, out.String())
	}
}

func TestWorkerStates(t *testing.T) {
	for want, w := range map[string]*admin.Worker{
		"executing":          {State: admin.Worker_EXECUTING},
		"draining (leaving)": {State: admin.Worker_DRAINING},
		"draining":           {State: admin.Worker_DRAINING, DrainedByPattern: true},
		"drained":            {State: admin.Worker_DRAINED, DrainedByPattern: true},
		"resting":            {State: admin.Worker_RESTING},
		"away":               {State: admin.Worker_AWAY},
	} {
		if got := workerState(w); got != want {
			t.Errorf("%v is shown as %s, want %s", w, got, want)
		}
	}
}
