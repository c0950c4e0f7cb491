package farm

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/completed"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/records/redistest"
	"github.com/forerunner-build/forerunner/scheduler"
)

// A term is one scheduler of those that share a lease.
type term struct {
	*testing.T
	conn *grpc.ClientConn
	stop func() // ends it, and returns when it has
}

// serveTerm returns a scheduler when it serves.
func serveTerm(t *testing.T, s Scheduler) *term {
	t.Helper()
	return startTerm(t, s)()
}

// startTerm starts a scheduler, and returns what waits until it serves.
func startTerm(t *testing.T, s Scheduler) (serves func() *term) {
	t.Helper()
	s.Listen, s.Data, s.Logger = freeport.Address(t), cmp.Or(s.Data, t.TempDir()), zap.NewNop()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- s.Run(ctx, context.Background(), func(address string) error { ready <- address; return nil })
	}()
	f := &term{T: t}
	var ended bool
	f.stop = func() {
		if ended {
			return
		}
		ended = true
		if f.conn != nil {
			_ = f.conn.Close()
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(f.stop)
	return func() *term {
		t.Helper()
		select {
		case address := <-ready:
			var err error
			if f.conn, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
				t.Fatal(err)
			}
		case err := <-done:
			done <- nil
			t.Fatal(err)
		}
		return f
	}
}

// run submits an action, has a worker of that name take it, and returns its operation's name.
func (f *term) run(blobs *term, worker string) (operation string, action *repb.Digest) {
	f.Helper()
	command, platform := &repb.Command{Arguments: []string{"/bin/true"}}, poolA()
	upload := func(m proto.Message) *repb.Digest {
		data, _ := proto.Marshal(m)
		d := digest.Of(digest.SHA256, data).Proto()
		_, err := repb.NewContentAddressableStorageClient(blobs.conn).BatchUpdateBlobs(f.Context(), &repb.BatchUpdateBlobsRequest{
			Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: d, Data: data}},
		})
		if err != nil {
			f.Fatal(err)
		}
		return d
	}
	action = upload(&repb.Action{CommandDigest: upload(command), InputRootDigest: upload(&repb.Directory{}), Platform: platform})
	stream, err := repb.NewExecutionClient(f.conn).Execute(f.Context(), &repb.ExecuteRequest{InstanceName: "team", ActionDigest: action})
	if err != nil {
		f.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil {
		f.Fatal(err)
	}
	for idle := (&remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}); ; {
		if f.synchronize(worker, idle).GetDesiredState().GetExecuting() != nil {
			return first.GetName(), action
		}
	}
}

func poolA() *repb.Platform {
	return &repb.Platform{Properties: []*repb.Platform_Property{{Name: "pool", Value: "a"}}}
}

func (f *term) synchronize(worker string, state *remoteworker.CurrentState) *remoteworker.SynchronizeResponse {
	f.Helper()
	resp, err := remoteworker.NewOperationQueueClient(f.conn).Synchronize(f.Context(), &remoteworker.SynchronizeRequest{
		WorkerId: map[string]string{"host": worker}, Platform: poolA(), CurrentState: state,
	})
	if err != nil {
		f.Fatal(err)
	}
	return resp
}

// completes has a worker say that its action has ended.
func (f *term) completes(worker string, action *repb.Digest) {
	f.Helper()
	f.synchronize(worker, &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Executing_{Executing: &remoteworker.CurrentState_Executing{
		ActionDigest:   action,
		ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: &repb.ExecuteResponse{Result: &repb.ActionResult{}}},
	}}})
}

// quota returns the quota of the instance "team".
func (f *term) quota() *admin.Quota {
	f.Helper()
	name := "team"
	list, err := admin.NewSchedulerClient(f.conn).ListQuotas(f.Context(), &admin.ListQuotasRequest{Cohort: "farm", InstanceName: &name})
	if err != nil {
		f.Fatal(err)
	}
	return list.GetCohorts()[0].GetQuotas()[0]
}

// TestTakeOverWithRecords has one scheduler take over from another with a real Redis. It must know
// quotas that were changed meanwhile, and a worker's running action before the worker is back.
func TestTakeOverWithRecords(t *testing.T) {
	redis := redistest.Start(t)
	blobs := serveTerm(t, Scheduler{Storage: storage.Settings{CacheSize: "10M"}})
	shared := Scheduler{
		State: state.Location("redis://" + redis.Addr), Storage: storage.Settings{Location: "grpc://" + blobs.conn.Target()}, Lease: "main", LeaseTime: 10 * time.Second,
		ConfigFile: writeConfig(t, "labels: {a: {pool: a}}\ncohorts: {farm: {labels: [a], unit: slots}}\n"),
	}
	first := serveTerm(t, shared)
	if _, err := admin.NewSchedulerClient(first.conn).PutQuota(t.Context(), &admin.PutQuotaRequest{
		Cohort: "farm", InstanceName: "team", Min: 1, Max: 2,
	}); err != nil {
		t.Fatal(err)
	}
	operation, action := first.run(blobs, "w")
	store, err := records.OpenRedis(string(shared.State), records.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for index := scheduler.NewIndex(store, "lease main", zap.NewNop()); len(index.Load(t.Context())) == 0; {
		time.Sleep(50 * time.Millisecond)
	}
	first.stop()

	waits := shared
	waits.Config.Settle = time.Hour // but all workers that were there will call
	second := serveTerm(t, waits)
	if q := second.quota(); q.GetMin() != 1 || q.GetMax() != 2 || q.GetUsed() != 1 {
		t.Errorf("quota and use are %v", q)
	}
	stream, err := repb.NewExecutionClient(second.conn).WaitExecution(t.Context(), &repb.WaitExecutionRequest{Name: operation})
	if err != nil {
		t.Fatal(err)
	}
	if op, err := stream.Recv(); err != nil || op.GetDone() {
		t.Fatalf("%v, %v before the worker is back", op, err)
	}
	second.completes("w", action)
	for {
		op, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if op.GetDone() {
			break
		}
	}
	second.run(blobs, "w")
}

// TestStandbyHasRecords: a waiting scheduler copies the records of the serving one to a folder of
// its own, and finds them when it serves.
func TestStandbyHasRecords(t *testing.T) {
	redis := redistest.Start(t)
	blobs := serveTerm(t, Scheduler{Storage: storage.Settings{CacheSize: "10M"}})
	shared := Scheduler{
		State: state.Location("redis://" + redis.Addr), Storage: storage.Settings{Location: "grpc://" + blobs.conn.Target()}, Lease: "main", LeaseTime: 10 * time.Second,
		Kept: completed.Settings{Keep: time.Hour, Size: "100M"},
	}
	first := serveTerm(t, shared)
	operation, action := first.run(blobs, "w")
	first.completes("w", action)
	var r *historypb.Record
	redistest.Eventually(t, "there is a record", func() (known bool) {
		var err error
		r, err = recordOf(t, first.conn, operation)
		return err == nil
	})
	waits := shared
	waits.Data = t.TempDir()
	serves := startTerm(t, waits)
	redistest.Eventually(t, "the record is with the other one", func() bool {
		files, _ := filepath.Glob(filepath.Join(waits.Data, durableFolder, historyFolder, "*.records"))
		return len(files) > 0
	})
	first.stop()
	if got, err := recordOf(t, serves().conn, operation); err != nil || !proto.Equal(got, r) {
		t.Errorf("it knows %v, %v, want %v", got, err, r)
	}
}

// TestFirstStart: a scheduler does not wait for workers if there never was one, or none was left.
func TestFirstStart(t *testing.T) {
	s := Scheduler{Storage: storage.Settings{CacheSize: "10M"}}
	s.Config.Settle = time.Hour
	f := serveTerm(t, s)
	f.run(f, "w")
}

// TestFirstOfAFarm: a scheduler is the first one if no other program can have the farm's data.
func TestFirstOfAFarm(t *testing.T) {
	used := t.TempDir()
	if err := os.Mkdir(filepath.Join(used, durableFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		s    Scheduler
		want bool
	}{
		"new folder":        {Scheduler{Data: t.TempDir()}, true},
		"used folder":       {Scheduler{Data: used}, false},
		"lease":             {Scheduler{Data: t.TempDir(), Lease: "main"}, false},
		"storage elsewhere": {Scheduler{Data: t.TempDir(), Storage: storage.Settings{Location: "127.0.0.1:1"}}, false},
	} {
		if got := test.s.isFirst(); got != test.want {
			t.Errorf("%s: first %t", name, got)
		}
	}
}
