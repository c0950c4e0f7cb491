package scheduler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/connection"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/finished"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

// queueService is Buildbarn's OperationQueue.
type queueService struct {
	*engine.Engine
	platforms *operation.Platforms
	peers     *peers
	roster    *roster
	// term and grant are those of ServerOptions.
	term  uint64
	grant func(instance string, action digest.Digest) string
	// putResult is that of ServerOptions.
	putResult func(ctx context.Context, instance string, action digest.Digest, result *repb.ActionResult) error
	twins     *twins
	// storage has the Commands that go with actions; nil: none do.
	storage func(*request.Operation) Storage
	records *finished.Recorder // nil: none are kept
	log     *zap.Logger
	remoteworker.UnimplementedOperationQueueServer
}

// Synchronize feeds a worker's report to the state and waits for the reply.
func (s queueService) Synchronize(
	ctx context.Context, req *remoteworker.SynchronizeRequest,
) (*remoteworker.SynchronizeResponse, error) {
	report, err := s.parseReport(ctx, req)
	if err != nil {
		return nil, err
	}
	if s.IsStopped() {
		return nil, engine.ErrStopped()
	}
	s.keepResult(ctx, req, &report)
	if s.term != 0 {
		// It can fail only if no one would get the header.
		_ = grpc.SetHeader(ctx, metadata.Pairs(names.TermHeader, strconv.FormatUint(s.term, 10)))
	}
	conn := connection.Of(ctx)
	if conn != nil {
		report.Connection = conn.ID()
	}
	s.peers.serves(report.Worker, cacheOf(ctx))
	report.Boot, report.Address, report.Circumstances = connection.Boot(ctx), addressOf(ctx), circumstancesOf(ctx)
	report.Slots = slotsOf(ctx)
	answer := make(chan event.Reply, 1)
	if !s.Accept(func(t engine.Turn) (out event.Out) {
		if ctx.Err() != nil || conn != nil && conn.Ended() { // it may have called again meanwhile, with news
			return t.Feed(event.Tick{})
		}
		report.Call = t.Hold(answer)
		out = t.Feed(&report)
		if err = out.Err; err != nil {
			t.Drop(report.Call)
		}
		return out
	}) {
		return nil, engine.ErrStopped()
	}
	if report.Call == 0 {
		return nil, status.FromContextError(cmp.Or(ctx.Err(), context.Canceled)).Err()
	}
	if err != nil {
		s.twins.warn(s.log, report.Worker, err)
		return nil, status.Errorf(codes.AlreadyExists, "%v: give each worker an --id of its own", err)
	}
	s.roster.called(report.Worker)
	select {
	case r := <-answer:
		return s.response(ctx, report.Worker, r)
	default:
	}
	select {
	case r := <-answer:
		return s.response(ctx, report.Worker, r)
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-s.Stopped():
		err = engine.ErrStopped()
	}
	// A reply that is under way now is lost; State finds out from the worker's
	// next call, or from its silence.
	s.Step(func(t engine.Turn) event.Out {
		t.Drop(report.Call)
		return t.Feed(event.Hangup{Worker: report.Worker, Call: report.Call})
	})
	return nil, err
}

// addressOf returns from where a worker calls; empty: nobody knows.
func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// circumstancesOf returns the circumstances under which a worker runs commands; empty: it does not
// name them.
func circumstancesOf(ctx context.Context) string {
	values := intake.Header(ctx, names.CircumstancesHeader)
	if len(values) != 1 || len(values[0]) != sha256.Size {
		return ""
	}
	return values[0]
}

// maxSlots limits the slots of a worker: one that reports more is taken for one that reports none.
const maxSlots = 1 << 16

// slotsOf returns the number of slots of a worker's program; 0: it does not report it.
func slotsOf(ctx context.Context) int {
	values := intake.Header(ctx, names.SlotsHeader)
	if len(values) != 1 {
		return 0
	}
	if n, err := strconv.ParseUint(values[0], 10, 32); err == nil && n <= maxSlots {
		return int(n)
	}
	return 0
}

// instanceOf returns the instance name of the action that a worker has, if it names that.
func instanceOf(ctx context.Context, prefix string) (name string, named bool, err error) {
	values := intake.Header(ctx, names.InstanceHeader)
	if len(values) != 1 {
		return "", false, nil
	}
	name = instance.Join(prefix, values[0])
	if err := instance.Check(name); err != nil {
		return "", false, status.Errorf(codes.InvalidArgument, "%s: %v", names.InstanceHeader, err)
	}
	return name, true, nil
}

// offerOf returns the headers of a worker's call about its platform.
func offerOf(ctx context.Context) (o operation.Offer) {
	if values := intake.Header(ctx, names.RequiredHeader); len(values) == 1 {
		o.Required = values[0]
	}
	if values := intake.Header(ctx, names.ImpliedHeader); len(values) == 1 {
		o.Implied = values[0]
	}
	return o
}

const (
	// maxTwins limits the workers for which a log line about a second process is remembered;
	// twinsLogged is how often that is logged.
	maxTwins, twinsLogged = 1000, time.Minute
)

// twins remember when it was logged last that another process calls as a worker.
type twins struct {
	logged *bounded.Shared[string, time.Time]
}

func newTwins() *twins {
	return &twins{bounded.NewShared[string, time.Time](maxTwins)}
}

func (t *twins) warn(log *zap.Logger, worker string, err error) {
	if last, known := t.logged.Get(worker); known && time.Since(last) < twinsLogged {
		return
	}
	t.logged.Put(worker, time.Now())
	log.Warn("two processes have the same worker identity; the second is refused; give each its own --id",
		append(workerFields(worker), zap.Error(err))...)
}

// parseReport checks and converts a request. Its errors are gRPC statuses.
func (s queueService) parseReport(ctx context.Context, req *remoteworker.SynchronizeRequest) (event.Report, error) {
	if len(req.GetWorkerId()) == 0 {
		return event.Report{}, status.Error(codes.InvalidArgument, "worker_id is empty")
	}
	if err := instance.Check(req.GetInstanceNamePrefix()); err != nil {
		return event.Report{}, status.Errorf(codes.InvalidArgument, "instance_name_prefix: %v", err)
	}
	r := event.Report{
		Worker:     names.WorkerKey(req.GetInstanceNamePrefix(), req.GetWorkerId()),
		ID:         req.GetWorkerId(),
		Prefix:     req.GetInstanceNamePrefix(),
		SizeClass:  req.GetSizeClass(),
		PreferIdle: req.GetPreferBeingIdle(),
	}
	var err error
	if r.Platform, err = s.platforms.Offer(req.GetPlatform(), offerOf(ctx)); err != nil {
		return event.Report{}, status.Error(codes.InvalidArgument, err.Error())
	}
	switch state := req.GetCurrentState().GetWorkerState().(type) {
	case *remoteworker.CurrentState_Idle:
		r.Doing = event.Idle
	case *remoteworker.CurrentState_Executing_:
		// The digest's function is not known; the form is the same.
		d, err := digest.FromProto(digest.SHA256, state.Executing.GetActionDigest())
		if err != nil {
			return event.Report{}, status.Errorf(codes.InvalidArgument, "action_digest: %v", err)
		}
		r.Doing, r.Action = event.Executing, d
		if r.Instance, r.Named, err = instanceOf(ctx, r.Prefix); err != nil {
			return event.Report{}, err
		}
		switch state.Executing.GetExecutionState().(type) {
		case *remoteworker.CurrentState_Executing_Running:
			r.Stage = event.Running
		case *remoteworker.CurrentState_Executing_UploadingOutputs:
			r.Stage = event.Uploading
		}
		if done, ok := state.Executing.GetExecutionState().(*remoteworker.CurrentState_Executing_Completed); ok {
			r.Doing, r.Response = event.Completed, withValidCode(r.Worker, done.Completed)
			r.OutOfMemory = outOfMemory(r.Response)
		}
	default:
		return event.Report{}, status.Error(codes.InvalidArgument, "current_state is not set")
	}
	return r, nil
}

// withValidCode returns a worker's response with an error that clients know in the place of a
// status code that gRPC does not have.
func withValidCode(worker string, r *repb.ExecuteResponse) *repb.ExecuteResponse {
	code := r.GetStatus().GetCode()
	if code >= int32(codes.OK) && code <= int32(codes.Unauthenticated) {
		return r
	}
	r = proto.CloneOf(r)
	r.Status.Code = int32(codes.Internal)
	r.Status.Message = fmt.Sprintf("worker %s reported the invalid status code %d: %s", worker, code, r.Status.GetMessage())
	return r
}

// response converts a reply to a call of a worker.
func (s queueService) response(ctx context.Context, worker string, r event.Reply) (*remoteworker.SynchronizeResponse, error) {
	resp := &remoteworker.SynchronizeResponse{NextSynchronizationAt: timestamppb.New(r.NextSync)}
	switch r.Do {
	case event.Superseded:
		return nil, status.Error(codes.Aborted, "a newer call of the same worker_id replaced this one")
	case event.BeIdle:
		resp.DesiredState = &remoteworker.DesiredState{
			WorkerState: &remoteworker.DesiredState_Idle{Idle: &emptypb.Empty{}},
		}
	case event.Execute:
		s.namePeers(ctx, worker, r.Run)
		if s.grant != nil {
			header := metadata.Pairs(names.GrantHeader, s.grant(r.Run.Instance, r.Run.Digest))
			if s.putResult != nil {
				header.Set(names.ResultHeader, "1")
			}
			_ = grpc.SetHeader(ctx, header) // can fail only if no one would get it
		}
		action, auxiliary := sized(&r)
		auxiliary = s.withCommand(ctx, auxiliary, r.Run)
		resp.DesiredState = &remoteworker.DesiredState{
			WorkerState: &remoteworker.DesiredState_Executing_{Executing: &remoteworker.DesiredState_Executing{
				ActionDigest:       r.Run.Digest.Proto(),
				DigestFunction:     r.Run.Digest.Function().Proto(),
				Action:             action,
				QueuedTimestamp:    timestamppb.New(r.Queued),
				AuxiliaryMetadata:  auxiliary,
				InstanceNameSuffix: r.Suffix,
				W3CTraceContext:    r.Run.Trace,
			}},
		}
	}
	return resp, nil
}

// namePeers names peers in the answer to a call, whose worker will run op.
func (s queueService) namePeers(ctx context.Context, worker string, op *request.Operation) {
	if addresses := s.peers.of(worker, op); len(addresses) > 0 {
		// It can fail only if no one would get the header.
		_ = grpc.SetHeader(ctx, metadata.MD{names.PeerHeader: addresses})
	}
}
