package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/finished"
)

// services are what a Server registers.
type services struct {
	execution repb.ExecutionServer
	queue     remoteworker.OperationQueueServer
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *services) RegisterService(_ *grpc.ServiceDesc, service any) {
	if e, ok := service.(repb.ExecutionServer); ok {
		s.execution = e
	}
	if q, ok := service.(remoteworker.OperationQueueServer); ok {
		s.queue = q
	}
}

// An answer is a client's stream that waits for the end of its operation.
type answer struct {
	grpc.ServerStream
	ctx  context.Context
	done bool
}

func (a *answer) Context() context.Context { return a.ctx }

func (a *answer) Send(op *longrunningpb.Operation) error {
	a.done = a.done || op.GetDone()
	return nil
}

// hold creates a file that nobody can open until release.
func hold(t *testing.T, path string) (release func()) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("the file system of %s has no leases: %v", path, err)
	}
	return func() {
		if err := f.Close(); err != nil { // which ends the lease
			t.Error(err)
		}
	}
}

// TestDiskOfRecordsBlocks completes actions while the disk takes no records: no action waits, and
// records are lost only when there is no room for them in memory.
func TestDiskOfRecordsBlocks(t *testing.T) {
	const actions, memory = 1500, 32 << 20
	folder := t.TempDir()
	core, logs := observer.New(zap.WarnLevel)
	store, err := history.Open(folder, history.Options{Memory: memory, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	release := hold(t, filepath.Join(folder, "00000001.records"))
	storage := newFakeStorage()
	recorder := finished.New(finished.Options{Store: store})
	server, err := NewServer(ServerOptions{
		Storage: func(string, digest.Function) Storage { return storage }, Finished: recorder,
	})
	if err != nil {
		t.Fatal(err)
	}
	var of services
	server.Register(&of)
	ctx, stop := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error { return of.work(ctx) })
	within, cancel := context.WithTimeout(ctx, 5*time.Minute) // only a failure takes so long
	for i := range actions {
		a := &answer{ctx: within}
		req := &repb.ExecuteRequest{ActionDigest: storage.action(fmt.Sprintf("action-%d", i))}
		if err := of.execution.Execute(req, a); err != nil || !a.done {
			t.Errorf("action %d does not end while the disk blocks: %v", i, err)
			break
		}
	}
	cancel()
	for recorder.Lost() == 0 && !t.Failed() { // the last ones are on their way to the store
		time.Sleep(time.Millisecond)
	}
	release()
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	stats := store.Stats()
	if stats.Records < 100 || stats.Records+int64(recorder.Lost()) != actions {
		t.Errorf("%d records and %d lost of %d actions", stats.Records, recorder.Lost(), actions)
	}
	if logs.FilterMessageSnippet("records of completed operations are lost").Len() != 1 {
		t.Errorf("log: %v", logs.All())
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// work is a worker whose actions take no time, and whose messages are long.
func (s *services) work(ctx context.Context) error {
	req := &remoteworker.SynchronizeRequest{WorkerId: map[string]string{"host": "w"}}
	idle := &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
	req.CurrentState = idle
	result := &repb.ExecuteResponse{Result: &repb.ActionResult{}, Message: strings.Repeat("x", 4<<10)}
	for {
		resp, err := s.queue.Synchronize(ctx, req)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		req.CurrentState = idle
		if x := resp.GetDesiredState().GetExecuting(); x != nil {
			req.CurrentState = executing(&remoteworker.CurrentState_Executing{
				ActionDigest:   x.GetActionDigest(),
				ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: result},
			})
		}
	}
}
