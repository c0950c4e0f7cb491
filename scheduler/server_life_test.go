package scheduler

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

func TestClientComesBack(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("long")
		client, hangup := f.client()
		s := client.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		name := s.at(repb.ExecutionStage_QUEUED).GetName()
		w := f.worker("w")
		w.idle()
		w.running(d)
		hangup()
		time.Sleep(25 * time.Second)
		w.running(d)
		again := f.wait(t.Context(), name)
		again.at(repb.ExecutionStage_EXECUTING)
		// The grace time of the first connection ends; nothing happens.
		for range 3 {
			time.Sleep(25 * time.Second)
			if resp := w.running(d); resp.GetDesiredState() != nil {
				t.Fatalf("the worker is told %v", resp)
			}
		}
		w.completed(d, success)
		again.done()
	})
}

func TestClientStaysAway(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("long")
		client, hangup := f.client()
		s := client.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		name := s.at(repb.ExecutionStage_QUEUED).GetName()
		w := f.worker("w")
		w.idle()
		w.running(d)
		hangup()
		for range 3 {
			time.Sleep(21 * time.Second)
			w.running(d)
		}
		if resp := w.running(d); resp.GetDesiredState().GetIdle() == nil {
			t.Errorf("nobody waits, and the worker is told %v", resp)
		}
		f.wait(t.Context(), name).fails(codes.NotFound, name)
	})
}

// TestCancelledCall has a client cancel its call. Its queued operation must be gone at once, and
// the worker of its running action must be woken to learn of it. After a call whose deadline has
// passed, the client may call again.
func TestCancelledCall(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		ctx, cancel := context.WithCancel(t.Context())
		serving, err := live.NewOutputsClient(f.conn).Serve(t.Context(), &live.ServeRequest{
			Workers: []*live.Identity{{WorkerId: map[string]string{"host": "other"}}, {WorkerId: map[string]string{"host": "w"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the server knows how to reach the workers
		limited, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		d := f.storage.action("runs")
		runs := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: d}).at(repb.ExecutionStage_QUEUED).GetName()
		w := f.worker("w")
		w.idle()
		w.running(d)
		queued := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: f.storage.action("waits")}).at(repb.ExecutionStage_QUEUED).GetName()
		late := f.execute(limited, &repb.ExecuteRequest{ActionDigest: f.storage.action("late")}).at(repb.ExecutionStage_QUEUED).GetName()
		cancel()
		synctest.Wait() // the server has learned of both
		asked, err := serving.Recv()
		if err != nil || !asked.GetCall() || asked.GetWorker() != 1 {
			t.Fatalf("the worker is asked for %v, %v", asked, err)
		}
		if resp := w.running(d); resp.GetDesiredState().GetIdle() == nil {
			t.Errorf("nobody waits, and the worker is told %v", resp)
		}
		f.wait(t.Context(), runs).fails(codes.NotFound, runs)
		f.wait(t.Context(), queued).fails(codes.NotFound, queued)
		time.Sleep(10 * time.Second)
		f.wait(t.Context(), late).at(repb.ExecutionStage_QUEUED)
	})
}

// TestTwoProcessesOfOneWorker has two processes call with one identity. The second must be refused,
// and both be named, until the connection of the first is closed.
func TestTwoProcessesOfOneWorker(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		near, hangup := f.client()
		first, second := near.worker("w"), f.worker("w")
		first.boot, second.boot = "1", "2"
		d := f.storage.action("long")
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d}).at(repb.ExecutionStage_QUEUED)
		first.idle()
		first.running(d)
		second.req.CurrentState = first.req.GetCurrentState()
		for range 3 {
			_, err := second.sync(t.Context())
			wantStatus(t, err, codes.AlreadyExists, "another process has this worker's identity: one at bufconn, this one is at bufconn")
		}
		if n := f.logs.FilterMessageSnippet("two processes have the same worker identity").Len(); n != 1 {
			t.Errorf("%d warnings", n)
		}
		shown := func() *admin.Worker {
			return asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetWorkers()[0]
		}
		if w := shown(); w.GetTwin() == "" || w.GetAddress() == "" {
			t.Errorf("shown is %v", w)
		}
		hangup()
		synctest.Wait()
		second.running(d)
		if w := shown(); w.GetTwin() != "" {
			t.Errorf("there is one process, and shown is %v", w)
		}
	})
}

func TestIdenticalActionsRunOnce(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("shared")
		alone := f.storage.action("alone", func(a *repb.Action, _ *repb.Command) { a.DoNotCache = true })
		a := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		b := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		if a.at(repb.ExecutionStage_QUEUED).GetName() == b.at(repb.ExecutionStage_QUEUED).GetName() {
			t.Error("two operations have one name")
		}
		c1 := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: alone})
		c1.at(repb.ExecutionStage_QUEUED)
		c2 := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: alone})
		c2.at(repb.ExecutionStage_QUEUED)
		if n := f.server.Counts(); n.Unmatched != 3 {
			t.Errorf("counts %+v", n)
		}
		w := f.worker("w")
		run := w.idle()
		for run != nil {
			run = w.completed(run.GetActionDigest(), success).GetDesiredState().GetExecuting()
		}
		for _, s := range []*stream{a, b, c1, c2} {
			s.done()
		}
	})
}

func TestWorkersLost(t *testing.T) {
	registry := prometheus.NewRegistry()
	o := ServerOptions{Config: tuning.Config{MaxAttempts: 2}, Metrics: registry}
	inFarm(t, o, func(t *testing.T, f *farm) {
		d := f.storage.action("killer")
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		f.worker("first").idle()
		f.worker("second").idle()
		r := s.done()
		if r.GetStatus().GetCode() != int32(codes.Internal) {
			t.Errorf("response %v", r)
		}
		synctest.Wait()
		if n := f.logs.FilterMessage("worker lost: it did not call in time").Len(); n != 2 {
			t.Errorf("logs %v", f.logs.All())
		}
		metrics, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range metrics {
			for _, v := range m.GetMetric() {
				got[m.GetName()] += v.GetCounter().GetValue() + v.GetGauge().GetValue() +
					float64(v.GetHistogram().GetSampleCount())
			}
		}
		want := map[string]float64{
			"forerunner_scheduler_workers_lost_total":  2,
			"forerunner_scheduler_operations_total":    1,
			"forerunner_scheduler_queue_seconds":       1,
			"forerunner_scheduler_returned_runs_total": 2,
		}
		maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("metrics %v, want %v", got, want)
		}
	})
}

// TestConnectionOfWorkerBreaks checks that an action does not wait for a worker that
// has died as for one that is slow.
func TestConnectionOfWorkerBreaks(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("x")
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		s.at(repb.ExecutionStage_QUEUED)
		others := f.conn
		f.conn = f.dial()
		dead := f.worker("dead")
		dead.idle()
		dead.running(d)
		_ = f.conn.Close()
		f.conn = others
		broken := time.Now()
		f.worker("heir").idle()
		if took := time.Since(broken); took != 10*time.Second {
			t.Errorf("another worker got the action after %s", took)
		}
	})
}

func TestClientWithTooMuch(t *testing.T) {
	inFarm(t, ServerOptions{Config: tuning.Config{MaxPerClient: 20}}, func(t *testing.T, f *farm) {
		for i := range 20 {
			d := f.storage.action(fmt.Sprint(i / 2))
			f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d}).at(repb.ExecutionStage_QUEUED)
		}
		err := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("x")}).
			fails(codes.ResourceExhausted, "20 of bufconn are not done")
		wantRetry(t, err)
	})
}

func TestNoWorkerFits(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		start := time.Now()
		r := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("x")}).done()
		if r.GetStatus().GetCode() != int32(codes.FailedPrecondition) || time.Since(start) != time.Minute {
			t.Errorf("after %s: %v", time.Since(start), r)
		}
	})
}

func TestSynchronizeRejects(t *testing.T) {
	idle := &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
	id := map[string]string{"a": "b"}
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		for text, req := range map[string]*remoteworker.SynchronizeRequest{
			"worker_id":     {CurrentState: idle},
			"prefix":        {WorkerId: id, CurrentState: idle, InstanceNamePrefix: "/x"},
			"current_state": {WorkerId: id},
			"action_digest": {WorkerId: id, CurrentState: executing(&remoteworker.CurrentState_Executing{})},
		} {
			_, err := (&fakeWorker{f: f, req: req}).sync(t.Context())
			wantStatus(t, err, codes.InvalidArgument, text)
		}
		if n := f.server.Counts(); n != (view.Counts{}) {
			t.Errorf("a rejected call left %+v", n)
		}
	})
}

// heldCall is an idle worker's call that a test lets wait.
func heldCall(ctx context.Context, w *fakeWorker) <-chan error {
	w.req.CurrentState = &remoteworker.CurrentState{
		WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}},
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.sync(ctx)
		done <- err
	}()
	synctest.Wait()
	return done
}

func TestNewerCallOfAWorkerWins(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		old := heldCall(t.Context(), f.worker("w"))
		ctx, hangup := context.WithCancel(t.Context())
		newer := heldCall(ctx, f.worker("w"))
		wantStatus(t, <-old, codes.Aborted, "newer call")
		hangup()
		wantStatus(t, <-newer, codes.Canceled, "")
		synctest.Wait()
		// No action is assigned to a call that has ended.
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("x")})
		s.at(repb.ExecutionStage_QUEUED)
		w := f.worker("w")
		w.completed(w.idle().GetActionDigest(), success)
		s.done()
	})
}

func TestShutdown(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		req := &repb.ExecuteRequest{ActionDigest: f.storage.action("x", func(a *repb.Action, _ *repb.Command) {
			a.Platform = &repb.Platform{Properties: []*repb.Platform_Property{{Name: "a", Value: "b"}}}
		})}
		s := f.execute(t.Context(), req)
		name := s.at(repb.ExecutionStage_QUEUED).GetName()
		held := heldCall(t.Context(), f.worker("w"))
		f.stop()
		s.fails(codes.Unavailable, "shutting down")
		wantStatus(t, <-held, codes.Unavailable, "shutting down")
		f.execute(t.Context(), req).fails(codes.Unavailable, "shutting down")
		f.wait(t.Context(), name).fails(codes.Unavailable, "shutting down")
		_, err := f.worker("w").sync(t.Context())
		wantStatus(t, err, codes.InvalidArgument, "current_state")
		wantStatus(t, <-heldCall(t.Context(), f.worker("w")), codes.Unavailable, "shutting down")
	})
}

func TestOperations(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		c := longrunningpb.NewOperationsClient(f.conn)
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("x")})
		name := s.at(repb.ExecutionStage_QUEUED).GetName()
		op, err := c.GetOperation(t.Context(), &longrunningpb.GetOperationRequest{Name: name})
		if err != nil || op.GetName() != name || op.GetDone() {
			t.Errorf("get: %v, %v", op, err)
		}
		if _, err := c.CancelOperation(t.Context(), &longrunningpb.CancelOperationRequest{Name: name}); err != nil {
			t.Error(err)
		}
		if r := s.done(); r.GetStatus().GetCode() != int32(codes.Canceled) {
			t.Errorf("response %v", r)
		}
		_, err = c.GetOperation(t.Context(), &longrunningpb.GetOperationRequest{Name: "x"})
		wantStatus(t, err, codes.NotFound, "x")
		_, err = c.CancelOperation(t.Context(), &longrunningpb.CancelOperationRequest{Name: "x"})
		wantStatus(t, err, codes.NotFound, "x")
	})
}

func TestCapabilities(t *testing.T) {
	cache := &repb.CacheCapabilities{MaxBatchTotalSizeBytes: 77}
	inFarm(t, ServerOptions{CacheCapabilities: func() *repb.CacheCapabilities { return cache }}, func(t *testing.T, f *farm) {
		c, err := repb.NewCapabilitiesClient(f.conn).GetCapabilities(t.Context(), &repb.GetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		x := c.GetExecutionCapabilities()
		if !x.GetExecEnabled() || x.GetDigestFunction() != repb.DigestFunction_SHA256 || len(x.GetDigestFunctions()) != 2 ||
			!proto.Equal(c.GetCacheCapabilities(), cache) || c.GetLowApiVersion().GetMajor() != 2 ||
			c.GetLowApiVersion().GetMinor() != 0 || c.GetHighApiVersion().GetMajor() != 2 || c.GetHighApiVersion().GetMinor() != 3 {
			t.Errorf("capabilities %v", c)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := NewServer(ServerOptions{}); err == nil {
		t.Error("no storage is accepted")
	}
	for _, c := range []tuning.Config{
		{WorkerSlack: -1},
		{MaxAttempts: -1},
		{ExecutionTimeout: 2 * time.Hour, MaxExecutionTimeout: time.Hour},
	} {
		if _, err := core.NewState(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestCrowd has many concurrent clients, some of which leave, and workers, one of which dies now
// and then. Every client that stays must get a result.
func TestCrowd(t *testing.T) {
	const clients, workers = 60, 5
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		ctx, stop := context.WithCancel(t.Context())
		var ran atomic.Int64
		var crew, crowd sync.WaitGroup
		for i := range workers {
			crew.Go(func() { f.work(ctx, f.worker(fmt.Sprint(i)), &ran, i == 0) })
		}
		for i := range clients {
			d := f.storage.action(fmt.Sprint(i % 20))
			crowd.Go(func() {
				mine, hangup := context.WithCancel(ctx)
				defer hangup()
				time.Sleep(time.Duration(i%7) * time.Second)
				s := f.execute(mine, &repb.ExecuteRequest{ActionDigest: d})
				if i%10 == 0 {
					s.next()
					return
				}
				if r := s.done(); r.GetStatus().GetCode() != 0 {
					t.Errorf("client %d: %v", i, r)
				}
			})
		}
		crowd.Wait()
		stop()
		crew.Wait()
		if n := ran.Load(); n < 20 || n > clients {
			t.Errorf("%d actions ran", n)
		}
	})
}

// work is a worker's life: each action takes a while, and a mortal worker
// forgets every third one.
func (f *farm) work(ctx context.Context, w *fakeWorker, ran *atomic.Int64, mortal bool) {
	state := &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
	for n := 1; ; n++ {
		w.req.CurrentState = state
		resp, err := w.sync(ctx)
		if err != nil {
			return
		}
		state = &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
		run := resp.GetDesiredState().GetExecuting()
		if run == nil {
			continue
		}
		time.Sleep(time.Duration(n%3) * time.Second)
		if mortal && n%3 == 0 {
			continue
		}
		ran.Add(1)
		state = executing(&remoteworker.CurrentState_Executing{
			ActionDigest:   run.GetActionDigest(),
			ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: success},
		})
	}
}

func TestOperationNames(t *testing.T) {
	s, err := NewServer(ServerOptions{Storage: func(string, digest.Function) Storage { return newFakeStorage() }})
	if err != nil {
		t.Fatal(err)
	}
	uuid := regexp.MustCompile(`^operations/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		op, err := s.requests.New(t.Context(), &repb.ExecuteRequest{ActionDigest: digest.SHA256.Empty().Proto()})
		if err != nil || !uuid.MatchString(op.Name) || seen[op.Name] {
			t.Fatalf("made %+v, %v", op, err)
		}
		seen[op.Name] = true
	}
}
