package operators

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/connection"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

// twinShown is how long it is shown that another process was refused: it tries again every few
// seconds.
const twinShown = time.Minute

// lookBatch is how many workers are read at a time while the scheduler does nothing else.
const lookBatch = 50

// maxReason bounds the reason of a drain.
const maxReason = 1 << 10

// workers shows operators the workers, and drains them.
type workers struct {
	*engine.Engine
	reports Reports
	lost    *Lost
	// keep is ServerOptions.KeepDrains. keeping is held while it is called, and taken before
	// engine.mu.
	keep    func([]drain.Record) error
	keeping sync.Mutex
}

// ListWorkers implements admin.SchedulerServer.
func (s *workers) ListWorkers(
	_ context.Context, req *admin.ListWorkersRequest,
) (*admin.ListWorkersResponse, error) {
	var p *pattern.Pattern
	if req.GetPattern() != nil {
		asked, err := s.ofWorkers(req.GetPattern())
		if err != nil {
			return nil, err
		}
		p = &asked
	}
	var programs map[string]string
	var drains []drain.Record
	s.Look(func(v *core.View) { programs, drains = v.Programs(p), v.Drains() })
	first := newFirst(req.GetPageToken(), req.GetPageSize())
	for key := range programs {
		first.add(key)
	}
	keys, next := first.page()
	resp := &admin.ListWorkersResponse{NextPageToken: next, Lost: s.lost.list()}
	for _, d := range drains {
		var matching int
		s.Look(func(v *core.View) { matching = v.Matching(&d.Pattern) })
		resp.Drains = append(resp.Drains, &admin.ActiveDrain{
			Pattern: &admin.Pattern{Attributes: d.Pattern.Map()}, Reason: d.Reason, Author: d.Author, Since: timestamppb.New(d.Since),
			Matching: int32(matching),
		})
	}
	for batch := range slices.Chunk(keys, lookBatch) {
		views := make([]view.Program, 0, len(batch))
		s.Look(func(v *core.View) {
			for _, key := range batch {
				if w, ok := v.Program(programs[key]); ok {
					views = append(views, w)
				}
			}
		})
		for _, w := range views {
			resp.Workers = append(resp.Workers, s.message(w, req.GetPositions()))
		}
	}
	return resp, nil
}

// states are the conditions of programs and positions as in messages.
var states = map[view.Condition]admin.Worker_State{
	view.IsIdle: admin.Worker_IDLE, view.IsExecuting: admin.Worker_EXECUTING, view.IsDraining: admin.Worker_DRAINING,
	view.IsDrained: admin.Worker_DRAINED, view.IsResting: admin.Worker_RESTING, view.IsAway: admin.Worker_AWAY,
	view.IsSuspended: admin.Worker_SUSPENDED,
}

// message returns the description of a program, with its positions if requested.
func (s *workers) message(v view.Program, positions bool) *admin.Worker {
	w := &admin.Worker{
		Identity: v.ID, InstanceNamePrefix: v.Prefix, Platform: properties(v.Platform), SizeClass: v.SizeClass,
		State: states[v.Condition], DrainedByPattern: v.Drained, Address: v.Address, Report: s.reports.Report(v.Worker),
		Slots: int32(SlotsOf(v.Load).All), Actions: int32(v.Load.Actions),
	}
	if time.Since(v.Refused) < twinShown {
		w.Twin = v.Twin
	}
	if v.Standing == trust.Suspended {
		w.SuspendedUntil = timestamppb.New(v.Until)
	}
	if v.Standing != trust.Trusted {
		w.FailedInARow, w.FailedLately = int32(v.Row), int32(v.Failures)
	}
	var oldest view.Position
	for _, p := range v.Positions {
		if p.Action != "" && (oldest.Action == "" || p.Since.Before(oldest.Since)) {
			oldest = p
		}
		if positions {
			w.Positions = append(w.Positions, &admin.Position{
				Name: names.Position(p.ID), State: states[p.Condition], Action: p.Action, Since: since(p.Since),
			})
		}
	}
	w.Action, w.Since = oldest.Action, since(oldest.Since)
	return w
}

// since is nil for no time.
func since(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func properties(p request.Platform) []*admin.Property {
	var list []*admin.Property
	for _, q := range p.Proto().GetProperties() {
		list = append(list, &admin.Property{Name: q.GetName(), Value: q.GetValue()})
	}
	return list
}

// ofWorkers returns the pattern of a message about workers. If none of those that are connected is
// identified by one of its names, nor a drain, that is an error.
func (s *workers) ofWorkers(m *admin.Pattern) (pattern.Pattern, error) {
	p, err := patternOf(m)
	if err != nil {
		return p, err
	}
	var known []string
	s.Look(func(v *core.View) {
		if known = v.WorkerAttributes(); len(known) == 0 {
			return // the names of other workers are unknown
		}
		for _, d := range v.Drains() {
			known = append(known, slices.Collect(maps.Keys(d.Pattern.Map()))...)
		}
	})
	if len(known) == 0 {
		return p, nil
	}
	slices.Sort(known)
	return p, knows(p, "worker", slices.Compact(known))
}

// Drain implements admin.SchedulerServer. A name that no worker is identified by is an error: the
// pattern would never match.
func (s *workers) Drain(ctx context.Context, req *admin.DrainRequest) (*admin.DrainResponse, error) {
	p, err := s.ofWorkers(req.GetPattern())
	if err != nil {
		return nil, err
	}
	if n := len(req.GetReason()); n > maxReason {
		return nil, status.Errorf(codes.InvalidArgument, "the reason has %d bytes; the maximum is %d", n, maxReason)
	}
	resp := &admin.DrainResponse{}
	err = s.change(core.Drain{Record: drain.Record{Pattern: p, Reason: req.GetReason(), Author: authorOf(ctx)}})
	s.Look(func(v *core.View) { resp.Workers = int32(v.Matching(&p)) })
	s.Look(func(v *core.View) { resp.Waiting = int64(v.WaitFor(&p)) })
	if errors.Is(err, drain.ErrTooMany) {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	} else if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if resp.GetWorkers() == 0 {
		resp.Warning = "no connected worker matches; the drain applies to workers that connect later"
	}
	return resp, s.keepDrains()
}

// authorOf returns the name of the caller: the user or, without authentication, the host.
func authorOf(ctx context.Context) string {
	if who := auth.FromContext(ctx); who != nil && who.User != "" {
		return who.User
	}
	return connection.Host(ctx)
}

// Undrain implements admin.SchedulerServer.
func (s *workers) Undrain(_ context.Context, req *admin.UndrainRequest) (*admin.UndrainResponse, error) {
	p, err := patternOf(req.GetPattern())
	if err != nil {
		return nil, err
	}
	if err := s.change(core.Undrain{Pattern: p}); err != nil {
		return nil, status.Errorf(codes.NotFound, "no drain %q is in force", p)
	}
	matched := 0
	s.Look(func(v *core.View) { matched = v.Matching(&p) })
	return &admin.UndrainResponse{Workers: int32(matched)}, s.keepDrains()
}

// change puts other drains in force, and returns when they are for all workers, or why it is
// refused.
func (s *workers) change(e event.Event) (err error) {
	behind := false
	s.Step(func(t engine.Turn) event.Out {
		out := t.Feed(e)
		err, behind = out.Err, t.View().IsReviewing()
		return out
	})
	for behind && !s.IsStopped() {
		s.Step(func(t engine.Turn) event.Out {
			out := t.Feed(event.Tick{})
			behind = t.View().IsReviewing()
			return out
		})
	}
	return err
}

// keepDrains stores the present drains, so that they survive a restart of the scheduler.
func (s *workers) keepDrains() error {
	if s.keep == nil {
		return nil
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	var drains []drain.Record
	s.Look(func(v *core.View) { drains = v.Drains() })
	if err := s.keep(drains); err != nil {
		return status.Errorf(codes.Internal, "this is in force, but a restart of the scheduler loses it: %v", err)
	}
	return nil
}
