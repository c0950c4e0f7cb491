package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/engine"
)

const (
	// promisesEvery is how often it is looked whether quotas guarantee more than the cohort has.
	promisesEvery = time.Minute
	// quotasEvery is how often changes of quotas by others are read.
	quotasEvery = 5 * time.Second
)

// quotas are those of cohorts: requests of operators, and changes by others.
type quotas struct {
	*engine.Engine
	log *zap.Logger
	// keep and load are ServerOptions.KeepQuota and LoadQuotas. keeping is held while a quota is
	// changed and kept, and taken before engine.mu.
	keep    func(context.Context, quota.Record) error
	load    func(context.Context) ([]quota.Record, error)
	keeping sync.Mutex
}

// cohorts returns the shares and the usage of cohorts by instance name.
func cohorts(e *engine.Engine) (views []view.Cohort) {
	e.Look(func(v *core.View) { views = v.Cohorts() })
	return views
}

// cohortsAndRuns returns cohorts and, if requested, their running operations at the same moment, in
// the order of the workers' keys.
func (s *quotas) cohortsAndRuns(wanted bool) (views []view.Cohort, runs map[quota.Key][]view.QuotaRun) {
	var all []view.QuotaRun
	s.Look(func(v *core.View) {
		if views = v.Cohorts(); wanted {
			all = v.QuotaRuns()
		}
	})
	slices.SortFunc(all, func(a, b view.QuotaRun) int { return cmp.Compare(a.Worker, b.Worker) })
	runs = map[quota.Key][]view.QuotaRun{}
	for _, r := range all {
		runs[r.Key] = append(runs[r.Key], r)
	}
	return views, runs
}

func runMessage(r view.QuotaRun) *admin.Run {
	return &admin.Run{
		Operation: r.Operation.Name, Action: r.Operation.Digest.String(), Worker: r.Worker,
		Started: timestamppb.New(r.Started), Cost: r.Cost,
	}
}

// ListQuotas implements admin.SchedulerServer.
func (s *quotas) ListQuotas(_ context.Context, req *admin.ListQuotasRequest) (*admin.ListQuotasResponse, error) {
	resp := &admin.ListQuotasResponse{}
	views, runs := s.cohortsAndRuns(req.GetWithRuns())
	left := quota.MaxOfCohort
	for _, v := range views {
		if req.GetCohort() != "" && req.GetCohort() != v.Name {
			continue
		}
		if req.InstanceName != nil {
			v.Uses = useOf(v, req.GetInstanceName())
		}
		c := cohortMessage(v)
		for _, q := range c.GetQuotas() {
			for _, r := range runs[quota.Key{Cohort: v.Name, Instance: q.GetInstanceName()}] {
				if left--; left >= 0 {
					q.Runs = append(q.Runs, runMessage(r))
				}
			}
		}
		resp.Cohorts = append(resp.Cohorts, c)
	}
	if len(resp.Cohorts) == 0 && req.GetCohort() != "" {
		return nil, status.Errorf(codes.NotFound, "there is no cohort %q", req.GetCohort())
	}
	return resp, nil
}

// useOf returns the use of one instance of a cohort, which may have nothing.
func useOf(v view.Cohort, instance string) []preemption.Use {
	for _, u := range v.Uses {
		if u.Instance == instance {
			return []preemption.Use{u}
		}
	}
	return []preemption.Use{{Key: quota.Key{Cohort: v.Name, Instance: instance}}}
}

func cohortMessage(v view.Cohort) *admin.Cohort {
	c := &admin.Cohort{
		Name: v.Name, Unit: string(quota.SizeClasses), Capacity: v.Capacity, Used: v.Used, Minimums: v.Minimums,
		Preemptions: v.Preemptions, Warning: warningOf(v),
	}
	if v.Unit != "" {
		c.Unit = string(v.Unit)
	}
	for _, u := range v.Uses[:min(len(v.Uses), quota.MaxOfCohort)] {
		c.Quotas = append(c.Quotas, &admin.Quota{
			InstanceName: u.Instance, Min: u.Min, Max: u.Max, Used: u.Used, Waiting: int64(u.Waiting),
		})
	}
	return c
}

// warningOf returns a warning if quotas guarantee more than the cohort has; otherwise empty.
func warningOf(v view.Cohort) string {
	if v.Minimums <= v.Capacity {
		return ""
	}
	return fmt.Sprintf("the minimums exceed the capacity: they add up to %d, the workers of the cohort to %d", v.Minimums, v.Capacity)
}

// PutQuota implements admin.SchedulerServer.
func (s *quotas) PutQuota(ctx context.Context, req *admin.PutQuotaRequest) (*admin.PutQuotaResponse, error) {
	r := quota.Record{
		Key:   quota.Key{Cohort: req.GetCohort(), Instance: req.GetInstanceName()},
		Quota: quota.Quota{Min: req.GetMin(), Max: req.GetMax()},
	}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	s.Look(func(v *core.View) {
		old := v.Quota(r.Key)
		if req.GetKeepMin() {
			r.Min = old.Min
		}
		if req.GetKeepMax() {
			r.Max = old.Max
		}
	})
	err := s.Feed(core.PutQuota{Record: r, Preempt: req.GetPreempt()}).Err
	switch {
	case errors.Is(err, quota.ErrNoCohort):
		return nil, status.Error(codes.NotFound, err.Error())
	case errors.Is(err, quota.ErrTooMany):
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.log.Info("quota changed", zap.String("cohort", r.Cohort), zap.String("instance", r.Instance),
		zap.Int64("min", r.Min), zap.Int64("max", r.Max), zap.Bool("preempt", req.GetPreempt()))
	views := cohorts(s.Engine)
	v := views[slices.IndexFunc(views, func(v view.Cohort) bool { return v.Name == r.Cohort })]
	v.Uses = useOf(v, r.Instance)
	return &admin.PutQuotaResponse{Cohort: cohortMessage(v)}, s.kept(ctx, r)
}

// DeleteQuota implements admin.SchedulerServer.
func (s *quotas) DeleteQuota(ctx context.Context, req *admin.DeleteQuotaRequest) (*admin.DeleteQuotaResponse, error) {
	k := quota.Key{Cohort: req.GetCohort(), Instance: req.GetInstanceName()}
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if err := s.Feed(core.DeleteQuota{Key: k}).Err; err != nil {
		return nil, status.Errorf(codes.NotFound, "%q has no quota of cohort %q", k.Instance, k.Cohort)
	}
	s.log.Info("quota deleted", zap.String("cohort", k.Cohort), zap.String("instance", k.Instance))
	return &admin.DeleteQuotaResponse{}, s.kept(ctx, quota.Record{Key: k})
}

// kept has a change outlive the scheduler. The caller holds keeping.
func (s *quotas) kept(ctx context.Context, r quota.Record) error {
	if s.keep == nil {
		return nil
	}
	if err := s.keep(ctx, r); err != nil {
		return status.Errorf(codes.Internal, "this is in force, but a restart of the scheduler loses it: %v", err)
	}
	return nil
}

// FollowQuotas applies the changes of others until ctx ends.
func (s *quotas) FollowQuotas(ctx context.Context) {
	ticker := time.NewTicker(quotasEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := s.take(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Warn("cannot read quotas; changes by other schedulers are unknown", zap.Error(err))
		}
		failing = err != nil
	}
}

// take applies the stored quotas, and only these. It skips quotas of unknown cohorts.
func (s *quotas) take(ctx context.Context) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	limited, cancel := context.WithTimeout(ctx, quotasEvery)
	defer cancel()
	kept, err := s.load(limited)
	if err != nil {
		return err
	}
	old := map[quota.Key]quota.Quota{}
	s.Look(func(v *core.View) {
		for _, r := range v.QuotaRecords() {
			old[r.Key] = r.Quota
		}
	})
	for _, r := range kept {
		if q, ok := old[r.Key]; !ok || q != r.Quota {
			if s.Feed(core.PutQuota{Record: r}).Err == nil {
				s.log.Info("quota was changed elsewhere", zap.String("cohort", r.Cohort), zap.String("instance", r.Instance))
			}
		}
		delete(old, r.Key)
	}
	for k := range old {
		s.Feed(core.DeleteQuota{Key: k})
		s.log.Info("quota was deleted elsewhere", zap.String("cohort", k.Cohort), zap.String("instance", k.Instance))
	}
	return nil
}

// WatchPromises logs when the guarantees of a cohort begin to exceed its capacity, until ctx ends.
func (s *quotas) WatchPromises(ctx context.Context) {
	ticker := time.NewTicker(promisesEvery)
	defer ticker.Stop()
	warned := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, v := range cohorts(s.Engine) {
			w := warningOf(v)
			if w != "" && !warned[v.Name] {
				s.log.Warn("quotas guarantee more than the cohort has", zap.String("cohort", v.Name),
					zap.Int64("minimums", v.Minimums), zap.Int64("capacity", v.Capacity))
			}
			warned[v.Name] = w != ""
		}
	}
}
