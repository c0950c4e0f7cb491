package farm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/forerunner-build/forerunner/buildevents"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/completed"
	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web"
	"github.com/forerunner-build/forerunner/worker/policy"
)

// A Scheduler is the configuration of a scheduler and of its embedded storage. The tags are the
// users' documentation of each setting.
type Scheduler struct {
	// Listen is HOST:PORT; port 0 picks one.
	Listen string `flag:"listen" group:"Ports" unit:"ADDRESS" default:"127.0.0.1:8980" doc:"Address for gRPC: clients, workers, storage"`
	HTTP   string `flag:"http" unit:"ADDRESS" default:"127.0.0.1:8981" doc:"Address for pages, health and metrics over HTTP; empty is none"`
	// PageURL is empty for the address of HTTP, if that is on loopback.
	PageURL string      `flag:"page-url" unit:"URL" otherwise:"http://HTTP, where that is on loopback" doc:"Public URL of the pages, which messages of failed actions link to"`
	Ports   serve.Ports `settings:"inline"`

	Data    string           `flag:"data" group:"Storage" unit:"FOLDER" otherwise:"/var/lib/forerunner-scheduler; in the cache folder of users other than root" doc:"Data folder of the scheduler"`
	Storage storage.Settings `settings:"inline"`

	// State is the store of statistics, and of profiles for workers.
	State state.Location     `flag:"state" unit:"LOCATION" otherwise:"bolt:DATA/records.db" doc:"Store of statistics and profiles: bolt:PATH, redis://HOST:PORT (also rediss, redis+sentinel, redis+cluster) or grpc(s)://HOST:PORT of a scheduler or of Buildbarn's services"`
	Kept  completed.Settings `settings:"inline"`
	Disk  scrub.Disk         `settings:"inline"`

	// Lease is the lease that this scheduler must hold to serve, in a State that is a Redis; empty:
	// none.
	Lease string `flag:"lease" group:"Scheduling" unit:"NAME" otherwise:"this scheduler always serves" doc:"Name of the lease of schedulers with the same --state (a Redis): one serves, and when it dies another takes over"`
	// LeaseTime must be the same for all schedulers with the Lease.
	LeaseTime time.Duration `tuning:"lease_time" unit:"TIME" above:"0" default:"10s" doc:"Time after which another scheduler takes over the lease of one that has died"`
	// LearnSizes starts actions on the size class that earlier runs suggest; otherwise they start
	// on the largest.
	LearnSizes  bool          `flag:"learn-sizes" default:"true" doc:"Starts each action on the smallest size class that similar actions needed; otherwise on the largest"`
	FirstUpdate time.Duration `tuning:"first_update" unit:"TIME" default:"20ms" doc:"Time in which the client of a new operation gets only its end, which saves the other messages of a short one; 0: every state at once"`
	// Reuse has an effect only with workers that share runs.
	Reuse  bool          `tuning:"scheduler_reuse" unit:"true|false" default:"true" doc:"The scheduler answers an action with the result of an unchanged earlier run that workers with --reuse=profile share, without a worker; otherwise only workers do"`
	Config tuning.Config `settings:"inline"`
	// Record is a file for events, for journal.Replay; empty: none.
	Record string `flag:"record" unit:"FILE" otherwise:"none" doc:"File for all events, for forerunner-scheduler replay; it ends at 1 GiB"`
	// ConfigFile is a YAML file with the sharing of workers and other settings; empty: none.
	ConfigFile string `flag:"config" group:"General" unit:"FILE" otherwise:"none" doc:"YAML file with queues, quotas, size classes, access and tuning settings (docs/reference/configuration.md)"`

	// Client is the identity that this program presents to external storage.
	Client dial.Client `settings:"inline"`
	// Callers limit callers, and contain the memory limit.
	Callers serve.Callers `settings:"inline"`
	// Tracing is also the worker's, if there is one in this process.
	Tracing serve.Tracing `settings:"inline"`

	// EndsWithReady ends Run after ready has returned, as soon as clients have had time to fetch
	// their results.
	EndsWithReady bool
	Logger        *zap.Logger
	joined        *joined        // a worker in this process; nil: there is none
	held          *records.Lease // the Lease while Run runs; nil: there is none
}

// Settings returns the settings of a scheduler. Its file may also be that of a worker.
func (s *Scheduler) Settings() *settings.Set {
	return s.own().Beside(new(Worker).own()).Beside(settings.Of(new(Together)))
}

func (s *Scheduler) own() *settings.Set {
	s.Data = flags.DefaultData("forerunner-scheduler")
	s.Config.ActionProperties = policy.ActionProperties
	s.Tracing.FromEnvironment()
	return settings.Of(s).Checked(dial.CheckPort, "listen", "http").Checked(checkPageURL, "page-url").
		Checked(storage.CheckLocation, "storage").Needed("data")
}

// Files returns the files that the flags and the configuration name.
func (s *Scheduler) Files() []string { return append(config.Files(s.ConfigFile), s.Ports.Files()...) }

// Scheme returns the scheme of the addresses for clients of s.
func (s *Scheduler) Scheme() string { return s.Ports.Scheme() }

// serve serves until ctx ends, in a term of a lease, or 0 without one. ready is called once
// with the address of the gRPC port, when calls are answered.
func (s *Scheduler) serve(
	ctx, abort context.Context, config checkedScheduler, term uint64, ready func(address string) error,
) (err error) {
	registry, can := serve.NewRegistry(), &serve.Readiness{}
	if s.joined != nil {
		registry.MustRegister(prometheus.WrapCollectorWith(prometheus.Labels{"half": "worker"}, undescribed{s.joined.metrics}))
		can = s.joined.ready
	}
	var open closers
	defer func() { err = errors.Join(err, open.close()) }()
	if config.logins != nil {
		if err := config.logins.Open(); err != nil {
			return err
		}
	}
	clients := &serve.Activity{}
	from := config.storage
	from.Load = scrub.Load{Busy: s.storageBusy(clients), Logger: s.Logger, Metrics: registry}
	storage, err := s.Storage.Open(ctx, from)
	if err != nil {
		return err
	}
	open.add(storage.Close)
	s.joined.shareStore(storage)
	listener, err := s.Ports.Listen(ctx, "--listen", s.Listen)
	if err != nil {
		return err
	}
	open.add(func() error { _ = listener.Close(); return nil })
	state, err := s.State.Open(s.Data, &s.Client, s.Logger)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	open.add(s.openSharedRuns(state))
	sched, kept, err := s.schedule(ctx, abort, schedulerOf{config, storage, state, registry, term}, &open)
	if err != nil {
		return err
	}
	server, health, err := serve.NewGRPC(registry, clients, s.ownOnly(config.protect, s.Listen), s.Callers)
	if err != nil {
		return err
	}
	open.add(func() error { server.Stop(); return nil }) // it has goroutines from the start
	sched.Register(server)
	storage.Register(server, sched)
	buildevents.New(kept.Store, registry).Register(server)
	shareRuns(server, storage, state)
	records.RegisterFSAC(server, state.Hints)
	records.RegisterISCC(server, state.Hints)
	if err := s.checkAccess(config.protect.Guard, server); err != nil {
		return err
	}
	pages, err := s.pages(sched, storage, state, &config, s.Scheme()+listener.Addr().String())
	if err != nil {
		return err
	}
	can.Add("scheduler", serve.Serving(ctx))
	can.Add("storage", storage.Ready)
	stopHTTP, err := s.Ports.ServeHTTP(ctx, s.HTTP, s.Callers, s.ownOnly(config.protect, s.HTTP),
		serve.Shown{Registry: registry, Ready: can, Pages: site(config.protect.Guard, pages)})
	if err != nil {
		return err
	}
	open.add(stopHTTP)
	calls, err := s.Callers.Accept(sched.Watch(listener), server, can, s.Logger)
	if err != nil {
		return err
	}
	parts := &schedulerParts{calls, clients, server, health, sched, kept, pages, storage}
	return s.run(ctx, abort, parts, ready)
}

// A schedulerOf has the components of a scheduler.Server.
type schedulerOf struct {
	config   checkedScheduler
	storage  *storage.Opened
	state    *state.Opened
	registry *prometheus.Registry
	term     uint64
}

// schedule makes the scheduler.Server, and adds the components that it must open.
func (s *Scheduler) schedule(ctx, abort context.Context, of schedulerOf, open *closers) (sched *scheduler.Server, kept completed.Records, err error) {
	tracer, endTracing, err := s.Tracing.Open(ctx, abort, "forerunner-scheduler", s.Logger)
	if err != nil {
		return nil, kept, err
	}
	open.add(endTracing)
	journal, finishRecord, err := s.record()
	if err != nil {
		return nil, kept, err
	}
	open.add(finishRecord)
	options := scheduler.ServerOptions{
		Storage:           func(instance string, fn digest.Function) scheduler.Storage { return of.storage.View(instance, fn) },
		Grant:             of.storage.Grant,
		PutResult:         of.storage.PutGranted,
		CacheCapabilities: of.storage.Capabilities,
		StorageHere:       of.storage.IsEmbedded(),
		Config:            of.config.scheduler,
		Logger:            s.Logger,
		Metrics:           of.registry,
		Tracer:            tracer,
		Journal:           journal,
		Term:              of.term,
		Pages:             s.Pages(),
		FirstUpdate:       s.FirstUpdate,
		OwnStore:          of.storage.Statistics(),
	}
	if of.storage.MissingInputs != nil {
		options.MissingInputs, options.Config.Apart = of.storage.MissingInputs, true
	}
	if err := s.remember(ctx, of.state, of.config.sizes, &options); err != nil {
		return nil, kept, err
	}
	if options.PastRuns, err = s.openPastRuns(of); err != nil {
		return nil, kept, err
	}
	if kept, err = s.openCompleted(ctx, of, &options); err != nil {
		return nil, kept, err
	}
	open.add(kept.Close)
	if sched, err = scheduler.NewServer(options); err != nil {
		return nil, kept, fmt.Errorf("scheduler: %w", err)
	}
	return sched, kept, nil
}

// undescribed has metrics some of which do not exist yet when they are registered.
type undescribed struct{ prometheus.Collector }

// Describe implements prometheus.Collector.
func (undescribed) Describe(chan<- *prometheus.Desc) {}

// schedulerParts are the parts of a running Scheduler.
type schedulerParts struct {
	listener net.Listener
	clients  *serve.Activity
	server   *intake.Server
	health   *health.Server
	sched    *scheduler.Server
	kept     completed.Records
	pages    *web.Site
	storage  *storage.Opened
}

// run runs all parts until ctx ends, or one of them fails. Once abort ends it waits for no call.
func (s *Scheduler) run(ctx, abort context.Context, p *schedulerParts, ready func(address string) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	if p.storage.Learn != nil { // before any call can arrive
		p.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	}
	group.Go(func() error { return p.server.Serve(p.listener) })
	switch j := s.joined; {
	case j == nil:
	case j.DirectCalls:
		j.direct.Serve(p.server, p.sched.Open)
	default:
		group.Go(func() error { return p.server.Serve(p.sched.Watch(j.sockets)) })
	}
	group.Go(func() error { return p.sched.Run(groupCtx) })
	group.Go(func() error { return p.pages.Run(groupCtx) })
	group.Go(func() error { p.kept.Run(groupCtx); return nil })
	group.Go(func() error { p.storage.Run(groupCtx); return nil })
	group.Go(func() error {
		<-groupCtx.Done()
		serve.StopGRPC(abort, p.server, p.health)
		return nil
	})
	var readyErr error
	group.Go(func() error {
		if p.storage.Learn != nil {
			if err := p.storage.Learn(groupCtx); err != nil || groupCtx.Err() != nil {
				return err
			}
			p.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
		}
		if ready == nil {
			return nil
		}
		if readyErr = ready(p.listener.Addr().String()); readyErr == nil && s.EndsWithReady {
			p.clients.WaitQuiet(ctx)
			stop()
		}
		return readyErr
	})
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return readyErr // even if it came with the end of ctx
}

// isFirst reports whether this is the first scheduler of its farm: the data folder has no data, and
// this farm keeps all its data there, because it has an embedded storage and no other scheduler.
func (s *Scheduler) isFirst() bool {
	_, err := os.Stat(filepath.Join(s.Data, durableFolder))
	return errors.Is(err, fs.ErrNotExist) && s.Lease == "" && s.Storage.Location == ""
}

// remember fills in the data that outlive a scheduler: drains, quotas and statistics of sizes. ctx
// is the whole time that it serves.
func (s *Scheduler) remember(
	ctx context.Context, state *state.Opened, sizes sizeclass.Options, o *scheduler.ServerOptions,
) (err error) {
	drains, quotas := s.durable(state.Shared)
	workers := durable.Roster[scheduler.WorkerSum]{Store: drains.Store, Lease: s.Lease}
	if o.Expected, err = workers.Load(ctx, s.isFirst()); err != nil {
		return err
	}
	o.KeepWorkers = func(here []scheduler.WorkerSum) error { return workers.Keep(context.WithoutCancel(ctx), here) }
	if err := s.takeOver(ctx, state.Hints, drains, quotas); err != nil {
		return err
	}
	if o.Drains, err = durable.LoadDrains(ctx, drains); err != nil {
		return err
	}
	o.KeepDrains = func(ds []drain.Record) error { return durable.KeepDrains(ctx, drains, ds) }
	o.KeepQuota = quotas.Keep
	shared := state.Shared != nil // other schedulers may have it, too
	if len(o.Config.Quotas.Cohorts) > 0 {
		if o.Quotas, err = s.firstQuotas(ctx, quotas, shared); err != nil {
			return err
		}
	}
	if shared {
		o.LoadQuotas = quotas.Load
		if o.Index, err = s.openIndex(state.Shared); err != nil {
			return err
		}
		o.Held = o.Index.Load(ctx)
	}
	o.Sizes, err = s.openSizes(state.Hints, sizes)
	return err
}
