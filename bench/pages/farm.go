package pages

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/finished"
	"github.com/forerunner-build/forerunner/web"
)

const pagesCohort = "linux"

// A pagesFarm is a scheduler with its pages, served over HTTP on 127.0.0.1. Clients and workers
// call it within the process. Each client executes one action over and over, so the queue keeps its
// length. Most workers never complete their action; the others report success at once.
type pagesFarm struct {
	shape pagesShape
	load  *load.Load
	blobs map[string][]byte

	sched     *scheduler.Server
	execution repb.ExecutionServer
	queue     remoteworker.OperationQueueServer
	address   string
	// hanging is the operation of the first worker, which never completes.
	hanging string

	recorder *finished.Recorder // nil: no records

	ended atomic.Int64 // completed actions
	// Workers hold calling for reading during a call.
	calling sync.RWMutex
	// between is the time from one call of a quick worker to its next, in nanoseconds; 0: none.
	between atomic.Int64
	calls   calls

	stop  context.CancelFunc
	group *errgroup.Group
}

// startPagesFarm returns a farm whose workers are all busy.
func startPagesFarm(ctx context.Context, shape pagesShape) (_ *pagesFarm, err error) {
	f := &pagesFarm{shape: shape}
	if f.load, err = load.New(shape.queued+shape.workers, shape.perInvocation); err != nil {
		return nil, err
	}
	f.blobs = load.NewStorage(f.load).Blobs
	if f.sched, err = scheduler.NewServer(f.options()); err != nil {
		return nil, err
	}
	f.sched.Register(f)
	site, err := web.New(web.Options{
		Scheduler: f.sched.Admin(), Operations: f.sched.Operations(),
		Output: f.sched.ByteStream(&bytestream.UnimplementedByteStreamServer{}),
		Blobs:  func(string, digest.Function) web.Blobs { return f },
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f.address = "http://" + listener.Addr().String()
	ctx, f.stop = context.WithCancel(ctx)
	f.group, ctx = errgroup.WithContext(ctx)
	f.group.Go(func() error { defer serve.PaceMemory(ctx, report.MemoryBytes, true)(); <-ctx.Done(); return nil })
	f.group.Go(func() error { return f.sched.Run(ctx) })
	f.group.Go(func() error { return site.Run(ctx) })
	pages := &http.Server{Handler: site.Handler(), ReadHeaderTimeout: time.Minute}
	f.group.Go(func() error {
		if err := pages.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	f.group.Go(func() error { <-ctx.Done(); return pages.Close() })
	if err := f.fill(ctx); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// options returns the options of a scheduler whose workers form one cohort, with a quota for each
// instance name.
func (f *pagesFarm) options() scheduler.ServerOptions {
	o := scheduler.ServerOptions{
		Storage:     func(string, digest.Function) scheduler.Storage { return f },
		StorageHere: true,
		Config: tuning.Config{
			MaxPerClient: 2 * len(f.load.Actions),
			Quotas: quota.Config{
				Labels:  []quota.Label{{Name: pagesCohort, Properties: map[string]string{"OSFamily": "linux"}}},
				Cohorts: []quota.Cohort{{Name: pagesCohort, Labels: []string{pagesCohort}, Unit: quota.Slots}},
			},
		},
	}
	if f.shape.records != nil {
		f.recorder = finished.New(finished.Options{
			Store: f.shape.records, Blobs: func(string, digest.Function) finished.Blobs { return f },
		})
		o.Finished = f.recorder
	}
	for i := range f.shape.instances {
		o.Quotas = append(o.Quotas, quota.Record{
			Key:   quota.Key{Cohort: pagesCohort, Instance: f.instance(i)},
			Quota: quota.Quota{Min: int64(f.shape.workers / f.shape.instances / 2)},
		})
	}
	return o
}

// instance returns the instance name of the i-th action.
func (f *pagesFarm) instance(i int) string {
	return fmt.Sprintf("team-%02d", i/f.shape.perInvocation%f.shape.instances)
}

// fill starts the clients and workers. It returns when all workers are busy and the remaining
// actions are queued.
func (f *pagesFarm) fill(ctx context.Context) error {
	if f.shape.workers == 0 {
		return nil
	}
	report.Progress("queueing %d operations for %d workers", f.shape.queued, f.shape.workers)
	for i := range f.load.Actions {
		f.group.Go(func() error { return f.ask(ctx, i) })
	}
	all := int64(len(f.load.Actions))
	if err := f.until(ctx, func(c view.Counts) bool { return int64(c.Unmatched) == all }); err != nil {
		return err
	}
	for i := range f.shape.workers {
		f.group.Go(func() error { return f.work(ctx, i) })
	}
	if err := f.until(ctx, func(c view.Counts) bool { return c.Executing >= f.shape.workers-f.shape.quick }); err != nil {
		return err
	}
	machine, _ := names.Machine(names.WorkerKey("", f.load.Worker(0).GetWorkerId()))
	first := &admin.ListOperationsRequest{Pattern: &admin.Pattern{Attributes: map[string]string{"worker": machine}}}
	for f.hanging == "" { // this worker may be the last to get an action
		list, err := f.sched.Admin().ListOperations(ctx, first)
		if err == nil {
			err = pause.For(ctx, 10*time.Millisecond)
		}
		if err != nil {
			return err
		}
		for _, op := range list.GetOperations() {
			f.hanging = op.GetName()
		}
	}
	return nil
}

func (f *pagesFarm) until(ctx context.Context, reached func(view.Counts) bool) error {
	for !reached(f.sched.Counts()) {
		if err := pause.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// close ends everything and returns all errors.
func (f *pagesFarm) close() error {
	f.stop()
	return f.group.Wait()
}

// rate returns the number of actions that complete per second, in a window that begins now.
func (f *pagesFarm) rate(ctx context.Context) (float64, error) {
	began, ended := time.Now(), f.ended.Load()
	err := pause.For(ctx, f.shape.window)
	return float64(f.ended.Load()-ended) / time.Since(began).Seconds(), err
}

// lost returns the number of records that were not stored.
func (f *pagesFarm) lost() uint64 { return f.recorder.Lost() }

// ask runs a client until ctx ends.
func (f *pagesFarm) ask(ctx context.Context, i int) error {
	stream := &pagesStream{ctx: metadata.NewIncomingContext(ctx, metadata.Pairs(names.RequestMetadataHeader, f.load.Actions[i].Who))}
	req := &repb.ExecuteRequest{InstanceName: f.instance(i), ActionDigest: f.load.Actions[i].Digest.Proto()}
	for {
		err := f.execution.Execute(req, stream)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("execute action %d: %w", i, err)
		}
	}
}

// work runs a worker until ctx ends.
func (f *pagesFarm) work(ctx context.Context, number int) error {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(names.CommandHeader, load.TakenCommand))
	req := f.load.Worker(number)
	idle := req.CurrentState
	quick := number >= f.shape.workers-f.shape.quick
	next := time.Now()
	for {
		between := time.Duration(f.between.Load())
		if quick && between > 0 {
			if next = next.Add(between); time.Since(next) > between { // the worker had no turn
				next = time.Now()
			}
			if pause.For(ctx, time.Until(next)) != nil {
				return nil
			}
		}
		f.calling.RLock()
		began := time.Now()
		resp, err := f.queue.Synchronize(ctx, req)
		if quick {
			f.calls.add(time.Since(began))
		}
		f.calling.RUnlock()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("worker %d: %w", number, err)
		}
		todo := resp.GetDesiredState().GetExecuting()
		switch {
		case !quick:
			if todo != nil {
				req.CurrentState = load.Executing(&remoteworker.CurrentState_Executing{
					ActionDigest:   todo.GetActionDigest(),
					ExecutionState: &remoteworker.CurrentState_Executing_Running{Running: &emptypb.Empty{}},
				})
			}
			if pause.For(ctx, time.Until(resp.GetNextSynchronizationAt().AsTime())) != nil {
				return nil
			}
		case todo != nil:
			req.CurrentState = load.Executing(&remoteworker.CurrentState_Executing{
				ActionDigest:   todo.GetActionDigest(),
				ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: load.Completed(todo)},
			})
			f.ended.Add(1)
		default:
			req.CurrentState = idle
		}
	}
}

// calls has the durations of calls, in µs.
type calls struct {
	mu   sync.Mutex
	took []float64 // guarded by mu
}

func (c *calls) add(took time.Duration) {
	c.mu.Lock()
	c.took = append(c.took, float64(took.Nanoseconds())/1000)
	c.mu.Unlock()
}

// take returns the durations since the last take, sorted. The memory is the next calls'.
func (c *calls) take() []float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took = c.took[:0]
	slices.Sort(took)
	return took
}

// RegisterService implements grpc.ServiceRegistrar for the services of clients and workers.
func (f *pagesFarm) RegisterService(_ *grpc.ServiceDesc, service any) {
	if s, ok := service.(repb.ExecutionServer); ok {
		f.execution = s
	}
	if s, ok := service.(remoteworker.OperationQueueServer); ok {
		f.queue = s
	}
}

// Read implements scheduler.Storage and web.Blobs.
func (f *pagesFarm) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	if b, ok := f.blobs[d.Proto().GetHash()]; ok {
		return b, nil
	}
	return nil, cas.ErrNotFound
}

// GetActionResult implements scheduler.Storage.
func (f *pagesFarm) GetActionResult(context.Context, digest.Digest) (*repb.ActionResult, error) {
	return nil, cas.ErrNotFound
}

// A pagesStream is the client's side of Execute.
type pagesStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *pagesStream) Context() context.Context { return s.ctx }

// Send implements repb.Execution_ExecuteServer.
func (s *pagesStream) Send(op *longrunningpb.Operation) error {
	if !op.GetDone() {
		return nil
	}
	_, err := load.AnswerOf(op)
	return err
}
