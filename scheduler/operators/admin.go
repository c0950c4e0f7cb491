package operators

import (
	"context"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/finished"
)

// Reports are the workers' reports, such as those of a live.Registry.
type Reports interface {
	// Report returns the last report of the worker with a key of names.WorkerKey, or nil.
	Report(key string) *live.Report
	// Reports returns the last report of each worker.
	Reports() map[*live.Report]struct{}
}

// Sizes answers requests about size classes.
type Sizes interface {
	GetSizes(context.Context, *admin.GetSizesRequest) (*admin.GetSizesResponse, error)
}

// Options configure a Service. Those without a comment are required.
type Options struct {
	Engine  *engine.Engine
	Reports Reports
	Sizes   Sizes
	Lost    *Lost
	Log     *zap.Logger
	// Finished has the records of operations that have ended; it may be nil.
	Finished *finished.Recorder
	// KeepDrains, KeepQuota, LoadQuotas and OwnStore are as in scheduler.ServerOptions; each may be
	// nil.
	KeepDrains func([]drain.Record) error
	KeepQuota  func(context.Context, quota.Record) error
	LoadQuotas func(context.Context) ([]quota.Record, error)
	OwnStore   func() *admin.Store
}

// A Service answers operators. Each call reads every worker once under the lock, or every operation
// in batches, and does the rest without the lock.
type Service struct {
	*workers
	queues
	operations
	*quotas
	Sizes
	stores
	finished.Admin
	unimplemented
}

// New returns a Service.
func New(o Options) Service {
	return Service{
		workers: &workers{Engine: o.Engine, reports: o.Reports, lost: o.Lost, keep: o.KeepDrains},
		queues:  queues{o.Engine, o.Lost, o.Reports}, operations: newOperations(o.Engine),
		quotas: &quotas{Engine: o.Engine, log: o.Log, keep: o.KeepQuota, load: o.LoadQuotas},
		Sizes:  o.Sizes, stores: stores{o.OwnStore, o.Reports}, Admin: finished.Admin{Recorder: o.Finished},
	}
}

// unimplemented are the calls that no part of Service has.
type unimplemented struct {
	admin.UnimplementedSchedulerServer
}
