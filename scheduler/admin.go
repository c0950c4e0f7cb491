package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

const (
	// maxQueues bounds the queues of one answer.
	maxQueues = 10_000
	// killBatch is how many operations are ended in one event: the others wait.
	killBatch = 100
)

// adminService is what operators ask and say. Each call looks at every worker once
// under the lock, or in pieces at every operation, and does the rest without it.
type adminService struct {
	*Server
	admin.UnimplementedSchedulerServer
}

// Admin returns what Register serves operators, for callers in this process.
func (s *Server) Admin() admin.SchedulerServer { return adminService{Server: s} }

// ListWorkers implements admin.SchedulerServer.
func (s adminService) ListWorkers(
	_ context.Context, req *admin.ListWorkersRequest,
) (*admin.ListWorkersResponse, error) {
	p, err := optionalPattern(req.GetPattern())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	keys, drains := s.state.View().WorkerKeys(p), s.state.View().Drains()
	s.mu.Unlock()
	first := newFirst(req.GetPageToken(), req.GetPageSize())
	for _, key := range keys {
		first.add(key)
	}
	keys, next := first.page()
	resp := &admin.ListWorkersResponse{NextPageToken: next, Lost: s.lost.list()}
	for _, d := range drains {
		resp.Drains = append(resp.Drains, &admin.Pattern{Attributes: d.Map()})
	}
	s.mu.Lock()
	for _, key := range keys {
		if v, ok := s.state.View().Worker(key); ok {
			resp.Workers = append(resp.Workers, workerMessage(v))
		}
	}
	s.mu.Unlock()
	for _, w := range resp.Workers {
		w.Report = s.live.report(core.WorkerKey(w.InstanceNamePrefix, w.Identity))
	}
	return resp, nil
}

func workerMessage(v core.WorkerView) *admin.Worker {
	w := &admin.Worker{
		Identity: v.ID, InstanceNamePrefix: v.Prefix, Platform: properties(v.Platform), SizeClass: v.SizeClass,
		State: admin.Worker_IDLE, Action: v.Action, DrainedByPattern: v.Drained,
	}
	serves := !v.Drained && !v.Leaving
	switch busy := v.Action != ""; {
	case v.Away:
		w.State = admin.Worker_AWAY
	case busy && serves:
		w.State = admin.Worker_EXECUTING
	case busy:
		w.State = admin.Worker_DRAINING
	case v.Drained:
		w.State = admin.Worker_DRAINED
	case v.Leaving:
		w.State = admin.Worker_RESTING
	}
	if !v.Since.IsZero() {
		w.Since = timestamppb.New(v.Since)
	}
	return w
}

func properties(p core.Platform) []*admin.Property {
	var list []*admin.Property
	for _, q := range p.Proto().GetProperties() {
		list = append(list, &admin.Property{Name: q.GetName(), Value: q.GetValue()})
	}
	return list
}

// Drain implements admin.SchedulerServer.
func (s adminService) Drain(_ context.Context, req *admin.DrainRequest) (*admin.DrainResponse, error) {
	p, err := patternOf(req.GetPattern())
	if err != nil {
		return nil, err
	}
	matched := 0
	s.step(func(now time.Time) (out core.Out) {
		out = s.feedLocked(now, core.Drain{Pattern: p})
		err = out.Err
		matched = len(s.state.View().WorkerKeys(&p))
		return out
	})
	if errors.Is(err, core.ErrTooManyDrains) {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	} else if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &admin.DrainResponse{Workers: int32(matched)}, s.keepDrains()
}

// Undrain implements admin.SchedulerServer.
func (s adminService) Undrain(_ context.Context, req *admin.UndrainRequest) (*admin.UndrainResponse, error) {
	p, err := patternOf(req.GetPattern())
	if err != nil {
		return nil, err
	}
	matched := 0
	s.step(func(now time.Time) (out core.Out) {
		out = s.feedLocked(now, core.Undrain{Pattern: p})
		err = out.Err
		matched = len(s.state.View().WorkerKeys(&p))
		return out
	})
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "no drain %q is in force", p)
	}
	return &admin.UndrainResponse{Workers: int32(matched)}, s.keepDrains()
}

// keepDrains has what is in force now outlive the Server.
func (s *Server) keepDrains() error {
	if s.options.KeepDrains == nil {
		return nil
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.mu.Lock()
	drains := s.state.View().Drains()
	s.mu.Unlock()
	if err := s.options.KeepDrains(drains); err != nil {
		return status.Errorf(codes.Internal, "this is in force, but not when the scheduler is restarted: %v", err)
	}
	return nil
}

// ListQueues implements admin.SchedulerServer.
func (s adminService) ListQueues(
	_ context.Context, req *admin.ListQueuesRequest,
) (*admin.ListQueuesResponse, error) {
	branches := int(req.GetMaxBranches())
	if branches <= 0 || branches > maxPage {
		branches = maxPage
	}
	s.mu.Lock()
	queues, unmatched := s.state.View().Queues(branches)
	s.mu.Unlock()
	resp := &admin.ListQueuesResponse{Unmatched: int64(unmatched.Queued), UnmatchedReason: unmatched.Why}
	resp.WorkersLost = s.lost.count()
	for _, v := range queues[:min(len(queues), maxQueues)] {
		q := &admin.Queue{
			InstanceNamePrefix: v.Prefix, Platform: properties(v.Platform), SizeClass: v.SizeClass,
			Workers: int32(v.Workers), Idle: int32(v.Idle), Executing: int32(v.Executing), Draining: int32(v.Draining),
			Resting: int32(v.Resting),
			Queued:  int64(v.Queued), Root: branchMessage(v.Root),
		}
		q.HeadReason = v.Why
		if v.Head != nil {
			q.HeadAction, q.HeadQueued = v.Head.Digest.String(), timestamppb.New(v.HeadSince)
			q.HeadOperation = v.Head.Name
		}
		resp.Queues = append(resp.Queues, q)
	}
	return resp, nil
}

func branchMessage(b core.Branch) *admin.Branch {
	m := &admin.Branch{Key: b.Key, Queued: int64(b.Queued), Running: int64(b.Running), Omitted: int64(b.Omitted), Why: b.Why, Due: b.Due}
	for _, child := range b.Children {
		m.Children = append(m.Children, branchMessage(child))
	}
	return m
}

// ListOperations implements admin.SchedulerServer. The caller sees his own.
func (s adminService) ListOperations(
	ctx context.Context, req *admin.ListOperationsRequest,
) (*admin.ListOperationsResponse, error) {
	p, err := optionalPattern(req.GetPattern())
	if err != nil {
		return nil, err
	}
	first := newFirst(req.GetPageToken(), req.GetPageSize())
	own := ownedBy(ctx)
	s.eachOperation(p, func(op *core.Operation) {
		if own(op) {
			first.add(op.Name)
		}
	})
	names, next := first.page()
	statuses := make([]core.Status, 0, len(names))
	s.mu.Lock()
	for _, name := range names {
		if st, ok := s.state.View().Operation(name); ok && !st.Done() {
			statuses = append(statuses, st)
		}
	}
	s.mu.Unlock()
	resp := &admin.ListOperationsResponse{NextPageToken: next}
	for _, st := range statuses {
		resp.Operations = append(resp.Operations, operationMessage(st))
	}
	return resp, nil
}

func operationMessage(s core.Status) *admin.Operation {
	op := &admin.Operation{
		Name: s.Name, Action: s.Digest.String(), DigestFunction: s.Digest.Function().String(), InstanceName: s.Instance,
		Invocation: s.Request.ToolInvocation, Target: s.Request.Target,
		Mnemonic: s.Request.Mnemonic, Client: s.Client,
		Queued: timestamppb.New(s.Queued), Worker: s.Worker, Attempts: int32(s.Attempts), Done: s.Done(),
		SizeClass: s.Size.Class, SizeReason: s.Size.Reason,
		WorkerAway: s.Away,
	}
	if s.Worker != "" {
		op.Started = timestamppb.New(s.Started)
	}
	return op
}

// GetOperation implements admin.SchedulerServer. What an operation waits for names operations of others: those
// are told who may observe.
func (s adminService) GetOperation(ctx context.Context, req *admin.GetOperationRequest) (*admin.Operation, error) {
	observes, why := auth.Allowed(ctx, auth.Observe, ""), ""
	s.mu.Lock()
	st, ok := s.operationLocked(ctx, req.GetName(), auth.Observe)
	if ok && observes {
		why = s.state.View().WaitsFor(req.GetName())
	}
	s.mu.Unlock()
	if !ok {
		return nil, errUnknownOperation(req.GetName())
	}
	op := operationMessage(st)
	op.WaitsFor = why
	return op, nil
}

// KillOperations implements admin.SchedulerServer.
func (s adminService) KillOperations(
	ctx context.Context, req *admin.KillOperationsRequest,
) (*admin.KillOperationsResponse, error) {
	p, err := patternOf(req.GetPattern())
	if err != nil {
		return nil, err
	}
	reason := req.GetReason()
	if reason == "" {
		reason = "no reason was given"
	}
	var names []string
	s.eachOperation(&p, func(op *core.Operation) { names = append(names, op.Name) })
	slices.Sort(names)
	killed := 0
	for batch := range slices.Chunk(names, killBatch) {
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(fmt.Errorf("%d operations were killed: %w", killed, err)).Err()
		}
		killed += s.feed(core.Kill{Names: batch, Reason: reason}).Killed
	}
	return &admin.KillOperationsResponse{Killed: int64(killed)}, nil
}

func patternOf(m *admin.Pattern) (pattern.Pattern, error) {
	p, err := pattern.New(m.GetAttributes())
	if err != nil {
		return p, status.Errorf(codes.InvalidArgument, "pattern: %v", err)
	}
	return p, nil
}

// optionalPattern returns nil for a pattern that is not set.
func optionalPattern(m *admin.Pattern) (*core.Pattern, error) {
	if m == nil {
		return nil, nil
	}
	p, err := patternOf(m)
	return &p, err
}
