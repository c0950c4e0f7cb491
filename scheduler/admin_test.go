package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/operators"
)

// asked has an operator's request answered.
func asked[Q, A any](t *testing.T, call func(context.Context, Q) (A, error), req Q) A {
	t.Helper()
	a, err := call(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func matching(pairs ...string) *admin.Pattern {
	return &admin.Pattern{Attributes: must(pattern.Parse(strings.Join(pairs, ","))).Map()}
}

// operator returns what an operator calls.
func (f *farm) operator() admin.SchedulerServer { return f.server.Admin() }

// expectStates checks what an operator is shown of each worker.
func (f *farm) expectStates(want string) {
	f.t.Helper()
	var list []string
	for _, w := range asked(f.t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetWorkers() {
		list = append(list, w.GetIdentity()["host"]+" "+w.GetState().String())
	}
	slices.Sort(list)
	if got := strings.Join(list, ", "); got != want {
		f.t.Errorf("workers are %s, want %s", got, want)
	}
}

// TestDrainByPattern drains a busy worker and an idle one; both are shown as such, and neither
// is given anything until that is taken back.
func TestDrainByPattern(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("a")
		s := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d})
		s.at(repb.ExecutionStage_QUEUED)
		busy := f.worker("rack1-busy")
		busy.idle()
		busy.running(d)
		idle := heldCall(t.Context(), f.worker("rack1-idle"))
		f.expectStates("rack1-busy EXECUTING, rack1-idle IDLE")
		rack := matching("host=rack1-*")
		if n := asked(t, f.operator().Drain, &admin.DrainRequest{Pattern: rack}).GetWorkers(); n != 2 {
			t.Errorf("%d workers are drained", n)
		}
		f.expectStates("rack1-busy DRAINING, rack1-idle DRAINED")
		busy.completed(d, success)
		s.done()
		other := f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("b")})
		other.at(repb.ExecutionStage_QUEUED)
		late := heldCall(t.Context(), f.worker("rack1-late"))
		f.expectStates("rack1-busy DRAINED, rack1-idle DRAINED, rack1-late DRAINED")
		list := asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{})
		if len(list.GetDrains()) != 1 || !proto.Equal(list.GetDrains()[0].GetPattern(), rack) || !list.GetWorkers()[0].GetDrainedByPattern() {
			t.Errorf("list %v", list)
		}
		asked(t, f.operator().Undrain, &admin.UndrainRequest{Pattern: rack})
		other.at(repb.ExecutionStage_EXECUTING)
		f.expectStates("rack1-busy IDLE, rack1-idle EXECUTING, rack1-late IDLE")
		if err := <-idle; err != nil {
			t.Error(err)
		}
		f.stop()
		wantStatus(t, <-late, codes.Unavailable, "")
	})
}

// TestDrainTells: a drain reports its effect, who requested it, and possible typing errors.
func TestDrainTells(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		early := asked(t, f.operator().Drain, &admin.DrainRequest{Pattern: matching("rack=7")})
		if early.GetWorkers() != 0 || !strings.Contains(early.GetWarning(), "no connected worker matches") {
			t.Errorf("without workers: %v", early)
		}
		w := f.worker("a")
		w.running(f.storage.action("running"))
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("waits")}).at(repb.ExecutionStage_QUEUED)
		for call, err := range map[string]error{
			"drain": second(f.operator().Drain(t.Context(), &admin.DrainRequest{Pattern: matching("hots=a")})),
			"kill":  second(f.operator().KillOperations(t.Context(), &admin.KillOperationsRequest{Pattern: matching("hots=a")})),
			"list":  second(f.operator().ListOperations(t.Context(), &admin.ListOperationsRequest{Pattern: matching("hots=a")})),
		} {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `has "hots"; there are `) {
				t.Errorf("%s: %v", call, err)
			}
		}
		asked(t, f.operator().ListOperations, &admin.ListOperationsRequest{Pattern: matching("platform.arch=*")})
		told := asked(t, f.operator().Drain, &admin.DrainRequest{Pattern: matching("host=a"), Reason: "disk"})
		if told.GetWorkers() != 1 || told.GetWaiting() != 1 || told.GetWarning() != "" {
			t.Errorf("told %v", told)
		}
		drains := asked(t, f.operator().ListWorkers, &admin.ListWorkersRequest{}).GetDrains()
		if len(drains) != 2 || drains[0].GetMatching() != 0 || drains[1].GetMatching() != 1 || drains[1].GetReason() != "disk" || !drains[1].GetSince().AsTime().Equal(time.Now()) {
			t.Errorf("drains %v", drains)
		}
	})
}

// TestDrainOfManyTells has a drain of more workers than one event drains tell what waits for them.
func TestDrainOfManyTells(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		const workers = 1000
		for i := range workers {
			f.worker(fmt.Sprint("w", i)).running(f.storage.action(fmt.Sprint("running", i)))
		}
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: f.storage.action("waits")}).at(repb.ExecutionStage_QUEUED)
		told := asked(t, f.operator().Drain, &admin.DrainRequest{Pattern: matching("host=w*")})
		if told.GetWorkers() != workers || told.GetWaiting() != 1 {
			t.Errorf("told %v", told)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestDrainsAreKept has a drain that outlives the server.
func TestDrainsAreKept(t *testing.T) {
	var kept []drain.Record
	o := ServerOptions{
		Storage:    func(string, digest.Function) Storage { return nil },
		KeepDrains: func(ds []drain.Record) error { kept = ds; return nil },
	}
	first := must(NewServer(o)).Admin()
	asked(t, first.Drain, &admin.DrainRequest{Pattern: matching("host=a")})
	asked(t, first.Drain, &admin.DrainRequest{Pattern: matching("host=b")})
	asked(t, first.Undrain, &admin.UndrainRequest{Pattern: matching("host=a")})
	o.Drains = kept
	second := must(NewServer(o)).Admin()
	list := asked(t, second.ListWorkers, &admin.ListWorkersRequest{})
	if len(list.GetDrains()) != 1 || list.GetDrains()[0].GetPattern().GetAttributes()["host"] != "b" {
		t.Errorf("drains %v", list)
	}
}

func TestAdminRejects(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		o := f.operator()
		for _, p := range []*admin.Pattern{nil, {}} {
			_, err := o.Drain(t.Context(), &admin.DrainRequest{Pattern: p})
			wantStatus(t, err, codes.InvalidArgument, "empty")
			_, err = o.Undrain(t.Context(), &admin.UndrainRequest{Pattern: p})
			wantStatus(t, err, codes.InvalidArgument, "empty")
			_, err = o.KillOperations(t.Context(), &admin.KillOperationsRequest{Pattern: p})
			wantStatus(t, err, codes.InvalidArgument, "empty")
		}
		_, err := o.Undrain(t.Context(), &admin.UndrainRequest{Pattern: matching("host=x")})
		wantStatus(t, err, codes.NotFound, "host=x")
		for i := range drain.Max {
			asked(t, o.Drain, &admin.DrainRequest{Pattern: matching(fmt.Sprint("host=", i))})
		}
		asked(t, o.Drain, &admin.DrainRequest{Pattern: matching("host=0")})
		_, err = o.Drain(t.Context(), &admin.DrainRequest{Pattern: matching("host=more")})
		wantStatus(t, err, codes.ResourceExhausted, "too many drains")
	})
}

// TestKill ends operations by name, by invocation and by a pattern on their platform.
func TestKill(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		execute := func(name, invocation, target, pool string) (*stream, string) {
			header := must(proto.Marshal(&repb.RequestMetadata{ToolInvocationId: invocation, TargetId: target}))
			ctx := metadata.AppendToOutgoingContext(t.Context(), names.RequestMetadataHeader, string(header))
			s := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: f.storage.action(name, func(a *repb.Action, _ *repb.Command) {
				a.Platform = &repb.Platform{Properties: []*repb.Platform_Property{{Name: "pool", Value: pool}}}
			})})
			return s, s.at(repb.ExecutionStage_QUEUED).GetName()
		}
		kill := func(want int, p *admin.Pattern) {
			t.Helper()
			resp := asked(t, f.operator().KillOperations, &admin.KillOperationsRequest{Pattern: p, Reason: "out of paper"})
			if resp.GetKilled() != int64(want) {
				t.Errorf("killed %d operations, want %d", resp.GetKilled(), want)
			}
		}
		dead := func(s *stream) {
			t.Helper()
			r := s.done().GetStatus()
			if r.GetCode() != int32(codes.FailedPrecondition) || !strings.Contains(r.GetMessage(), "out of paper") {
				t.Errorf("status %v", r)
			}
		}
		a, name := execute("a", "inv1", "//x:a", "p")
		b, _ := execute("b", "inv1", "//x:b", "p")
		c, _ := execute("c", "inv2", "//slow/x:c", "q")
		d, _ := execute("d", "inv2", "//y:d", "r")
		list := asked(t, f.operator().ListOperations, &admin.ListOperationsRequest{Pattern: matching("target=//slow/*")})
		if len(list.GetOperations()) != 1 || list.GetOperations()[0].GetInvocation() != "inv2" {
			t.Errorf("operations %v", list)
		}
		if op := asked(t, f.operator().GetOperation, &admin.GetOperationRequest{Name: name}); op.GetDone() ||
			op.GetTarget() != "//x:a" || op.GetDigestFunction() != "sha256" {
			t.Errorf("operation %v", op)
		}
		kill(1, matching("operation="+name))
		dead(a)
		if op := asked(t, f.operator().GetOperation, &admin.GetOperationRequest{Name: name}); !op.GetDone() {
			t.Errorf("operation %v", op)
		}
		if _, err := f.operator().GetOperation(t.Context(), &admin.GetOperationRequest{Name: "operations/x"}); status.Code(err) != codes.NotFound {
			t.Errorf("unknown operation: %v", err)
		}
		kill(0, matching("operation="+name))
		kill(1, matching("invocation=inv1", "stage=queued"))
		dead(b)
		kill(1, matching("target=//slow/*", "platform.pool=?"))
		dead(c)
		kill(0, matching("stage=executing"))
		kill(1, matching("client=*"))
		dead(d)
		if n := f.server.Counts(); n != (view.Counts{}) {
			t.Errorf("counts %+v", n)
		}
	})
}

// TestKillMany kills more than one event does, and lists more than one page holds.
func TestKillMany(t *testing.T) {
	server := must(NewServer(ServerOptions{Storage: func(string, digest.Function) Storage { return nil }}))
	const n = 2*operators.MaxPage + 50
	for i := range n {
		if err := server.engine.Feed(event.Submit{Operation: &request.Operation{
			Name: fmt.Sprint("op", i), Digest: digest.Of(digest.SHA256, fmt.Append(nil, i%1000)), Action: &repb.Action{},
		}}).Err; err != nil {
			t.Fatal(err)
		}
	}
	o := server.Admin()
	seen := map[string]bool{}
	for req := (&admin.ListOperationsRequest{}); ; {
		list := asked(t, o.ListOperations, req)
		for _, op := range list.GetOperations() {
			seen[op.GetName()] = true
		}
		if len(list.GetOperations()) > operators.MaxPage {
			t.Errorf("a page of %d", len(list.GetOperations()))
		}
		if req.PageToken = list.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	killed := asked(t, o.KillOperations, &admin.KillOperationsRequest{Pattern: matching("operation=*")}).GetKilled()
	if len(seen) != n || killed != n || server.Counts() != (view.Counts{}) {
		t.Errorf("%d operations were listed, %d killed, of %d; left are %+v", len(seen), killed, n, server.Counts())
	}
}

func TestListQueues(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		d := f.storage.action("a")
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: d}).at(repb.ExecutionStage_QUEUED)
		list := asked(t, f.operator().ListQueues, &admin.ListQueuesRequest{})
		if len(list.GetQueues()) != 0 || list.GetUnmatched() != 1 || !strings.Contains(list.GetUnmatchedReason(), "no worker is connected") {
			t.Errorf("queues without a worker: %v", list)
		}
		w := f.worker("w")
		w.idle()
		w.running(d)
		next := f.storage.action("b")
		f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: next}).at(repb.ExecutionStage_QUEUED)
		q := asked(t, f.operator().ListQueues, &admin.ListQueuesRequest{}).GetQueues()
		if len(q) != 1 || q[0].GetWorkers() != 1 || q[0].GetExecuting() != 1 || q[0].GetIdle() != 0 || q[0].GetQueued() != 1 ||
			!strings.HasPrefix(q[0].GetHeadAction(), next.GetHash()) || !strings.Contains(q[0].GetHeadReason(), "the only worker") ||
			q[0].GetRoot().GetQueued() != 1 || q[0].GetRoot().GetRunning() != 1 {
			t.Errorf("queues %v", q)
		}
		synctest.Wait()
	})
}
