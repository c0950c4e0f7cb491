package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// TestFailingWorkerIsSuspended: a worker that fails all that it is given gets nothing more,
// operators see which one and why, and it is back when it works again.
func TestFailingWorkerIsSuspended(t *testing.T) {
	registry := prometheus.NewRegistry()
	inFarm(t, ServerOptions{Metrics: registry}, func(t *testing.T, f *farm) {
		start := func(name string) *repb.Digest {
			d := f.storage.action(name)
			f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
			synctest.Wait()
			return d
		}
		well, broken := f.worker("well"), f.worker("broken")
		long := start("long")
		well.idle()
		well.running(long)
		var failed []*repb.Digest
		for i := range 5 {
			d := start(fmt.Sprint(i))
			failed = append(failed, d)
			broken.idle()
			broken.completed(d, &repb.ExecuteResponse{Status: &spb.Status{Code: int32(codes.Internal), Message: "read-only file system"}})
		}
		f.expectStates("broken SUSPENDED, well EXECUTING")
		for _, w := range asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetWorkers() {
			if w.GetIdentity()["host"] == "broken" && (w.GetFailedInARow() != 5 || w.GetFailedLately() != 5 || w.GetSuspendedUntil() == nil) {
				t.Errorf("%v", w)
			}
		}
		if got := suspects(t, registry); got != "host=broken" {
			t.Errorf("the metric names %s", got)
		}
		if q := asked(t, f.operator().ListQueues, &admin.ListQueuesRequest{}).GetQueues()[0]; q.GetSuspended() != 1 || q.GetBusy() != 1 || q.GetWorkers() != 2 {
			t.Errorf("the suspended worker counts as something else: %v", q)
		}
		well.running(long)
		time.Sleep(11 * time.Second)
		broken.idle()
		broken.completed(failed[0], &repb.ExecuteResponse{Result: &repb.ActionResult{}})
		f.expectStates("broken EXECUTING, well EXECUTING")
		if got := suspects(t, registry); got != "" {
			t.Errorf("the metric names %s", got)
		}
	})
}

// suspects returns which workers the metric names.
func suspects(t *testing.T, registry *prometheus.Registry) (names string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "forerunner_scheduler_worker_suspended" {
			continue
		}
		for _, m := range family.GetMetric() {
			names += m.GetLabel()[0].GetValue()
		}
	}
	return names
}
