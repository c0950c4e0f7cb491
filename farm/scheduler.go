package farm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web"
	"github.com/forerunner-build/forerunner/worker/policy"
)

// A Scheduler is the configuration of a scheduler and of the storage that it
// may embed. The tags say what users are told of each setting.
type Scheduler struct {
	// Listen is HOST:PORT; port 0 picks one.
	Listen string `flag:"listen" group:"Ports" unit:"ADDRESS" default:"127.0.0.1:8980" doc:"Address for gRPC: clients, workers, storage"`
	HTTP   string `flag:"http" unit:"ADDRESS" default:"127.0.0.1:8981" doc:"Address for pages, health and metrics over HTTP; empty is none"`
	// PageURL is empty for HTTP, where that is on loopback.
	PageURL string      `flag:"page-url" unit:"URL" otherwise:"http://HTTP, where that is on loopback" doc:"Public URL of the pages, which messages of failed actions link to"`
	Ports   serve.Ports `settings:"inline"`

	Data string `flag:"data" group:"Storage" unit:"FOLDER" otherwise:"/var/lib/forerunner-scheduler; in the cache folder of users other than root" doc:"Folder for everything that the scheduler keeps"`
	// Storage is empty for a dir below Data.
	Storage string `flag:"storage" unit:"PLACE" otherwise:"dir:DATA/storage" doc:"REv2 storage: dir:PATH (embedded), or grpc://HOST:PORT or grpcs://HOST:PORT with options (docs/STORAGE.md)"`
	// ActionCache is where results are if not in Storage elsewhere.
	ActionCache string `tuning:"action_cache" unit:"ADDRESS" otherwise:"that of --storage" doc:"Address of the action cache, if it is not where the storage is"`
	CacheSize   string `flag:"cache-size" unit:"SIZE" otherwise:"80% of the free space" doc:"Size of embedded storage"`
	// FreePercent of the free space is used without CacheSize; 0 is 80.
	FreePercent int
	// CacheWrites counts where callers are not known by name; empty: CacheWritesWorkers.
	CacheWrites CacheWrites `flag:"cache-writes" oneof:"workers clients" default:"workers" doc:"Who may write the action cache without authentication: workers, each the results of the actions that it was given; clients, everybody"`
	// IsolateContent has embedded storage keep the blobs of instance names apart.
	IsolateContent bool `flag:"isolate-content" doc:"Embedded storage shows each instance name only the blobs that it has uploaded or that its actions have made"`

	// State is where statistics, and profiles for workers, are kept.
	State       State       `flag:"state" unit:"PLACE" otherwise:"bolt:DATA/records.db" doc:"Place for how actions ran and what they read: bolt:PATH, redis://HOST:PORT (also rediss, redis+sentinel, redis+cluster) or grpc(s)://HOST:PORT of a scheduler or of Buildbarn's services"`
	Kept        Kept        `settings:"inline"`
	VerifyEvery VerifyEvery `tuning:"verify_every" group:"Disk" unit:"TIME" default:"24h" doc:"Time for which the program relies on content that it has hashed, unless the file changes; 0 hashes after each use"`
	Scrub       Scrub       `settings:"inline"`

	// Lease is what this scheduler has to hold to serve, in a State that is a Redis; empty: nothing.
	Lease string `flag:"lease" group:"Scheduling" unit:"NAME" otherwise:"this scheduler always serves" doc:"Name under which schedulers with the same --state (a Redis) take turns: one serves, and when it dies another does"`
	// LeaseTime is the same for all schedulers with the Lease.
	LeaseTime time.Duration `tuning:"lease_time" unit:"TIME" default:"10s" doc:"Time after which another scheduler takes the lease of one that has died"`
	// LearnSizes has actions start on the size class that former runs speak for; else they
	// start on the largest.
	LearnSizes bool        `flag:"learn-sizes" default:"true" doc:"Starts actions on the smallest size class that will do, by what similar actions did; else on the largest"`
	Config     core.Config `settings:"inline"`
	// Record is a file for what happens, for journal.Replay; empty: none.
	Record string `flag:"record" unit:"FILE" otherwise:"none" doc:"File for all events, which forerunner-scheduler replay reads; it ends at 1 GiB"`
	// ConfigFile is a YAML file that says how operations share workers; empty: none.
	ConfigFile string `flag:"config" group:"General" unit:"FILE" otherwise:"none" doc:"YAML file with queues, quotas, size classes, access and tuning settings (docs/reference/configuration.md)"`

	// Client is whom storage elsewhere is shown.
	Client dial.Client `settings:"inline"`
	// Callers bound what is taken in, and say how much memory there is.
	Callers serve.Callers `settings:"inline"`
	// Tracing is also the worker's, if there is one in this process.
	Tracing serve.Tracing `settings:"inline"`

	// EndsWithReady has Run end after ready has returned, as soon as clients have had
	// time to fetch what they were told of.
	EndsWithReady bool
	Logger        *zap.Logger
	workers       *prometheus.Registry // what that worker counts; nil: there is none
	ready         *serve.Readiness     // of both; nil: there is no worker
	local         *serve.InProcess     // for a worker in this process; nil: there is none
	unboxed       bool                 // that worker has no sandbox: who may call can act as the user of this process
}

// Settings are those of a scheduler. Its file may be that of a worker, too.
func (s *Scheduler) Settings() *settings.Set { return s.own().Beside(new(Worker).own()) }

func (s *Scheduler) own() *settings.Set {
	s.Data = flags.DefaultData("forerunner-scheduler")
	s.Config.ActionProperties = policy.ActionProperties
	s.Tracing.FromEnvironment()
	return settings.Of(s)
}

// Join has a worker work for s in this process, over connections that nobody else can make.
// It comes before the Run of either.
func (s *Scheduler) Join(started *Started) {
	w := started.w
	s.local, s.unboxed = serve.NewInProcess(), started.isolation.sandbox == nil
	w.Client.Connect = s.local.Dial
	address := "grpc://" + serve.InProcessNetwork + ":0"
	w.Scheduler, w.Storage, w.State = address, address, State(address)
	s.workers, s.ready = prometheus.NewRegistry(), &serve.Readiness{}
	w.metrics, w.ready = s.workers, s.ready
}

// Files are those that the flags and the configuration name.
func (s *Scheduler) Files() []string { return append(config.Files(s.ConfigFile), s.Ports.Files()...) }

// Scheme returns what the addresses of clients of s begin with.
func (s *Scheduler) Scheme() string { return s.Ports.Scheme() }

// serve serves until ctx ends, in a term of a lease, or 0 without one. ready is called once
// with the address of the gRPC port, when calls are answered.
func (s *Scheduler) serve(ctx, abort context.Context, term uint64, ready func(address string) error) (err error) {
	config, err := s.configured()
	if err != nil {
		return err
	}
	protect := config.protect
	registry := serve.NewRegistry()
	if s.workers != nil {
		registry.MustRegister(prometheus.WrapCollectorWith(prometheus.Labels{"half": "worker"}, undescribed{s.workers}))
	}
	clients := &serve.Activity{}
	storage, err := s.openStorage(ctx, scrubLoad{clients.MovesBlobs, s.Logger, registry}, protect.Guard != nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.close()) }()
	// Not before: clients would wait here for as long as storage does not answer, and not try elsewhere.
	listener, err := s.Ports.Listen(ctx, "--listen", s.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	tracer, endTracing, err := s.Tracing.Open(ctx, abort, "forerunner-scheduler", s.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endTracing()) }()
	journal, finishRecord, err := s.record()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finishRecord()) }()
	state, err := s.State.open(s.Data, &s.Client, s.Logger)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	defer func() { err = errors.Join(err, state.close()) }()
	options := scheduler.ServerOptions{
		Storage:           storage.of,
		Grant:             storage.grant,
		CacheCapabilities: storage.capabilities,
		Config:            config.scheduler,
		Logger:            s.Logger,
		Metrics:           registry,
		Tracer:            tracer,
		Journal:           journal,
		Term:              term,
		Pages:             s.Pages(),
		OwnStore:          storage.ownStore(),
	}
	if storage.isolated {
		options.MissingInputs, options.Config.Apart = storage.missingInputs, true
	}
	if err := s.remember(ctx, state, config.sizes, &options); err != nil {
		return err
	}
	closeRecords, err := s.openRecords(storage, registry, &options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeRecords()) }()
	sched, err := scheduler.NewServer(options)
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	server, health, err := serve.NewGRPC(registry, clients, s.ownOnly(protect, s.Listen), s.Callers)
	if err != nil {
		return err
	}
	defer server.Stop() // it has goroutines from the start
	sched.Register(server)
	storage.serveStreams(server, sched)
	records.RegisterFSAC(server, state.hints)
	records.RegisterISCC(server, state.hints)
	if err := s.checkAccess(protect.Guard, server); err != nil {
		return err
	}
	pages, err := s.pages(sched, storage, state.hints, &config)
	if err != nil {
		return err
	}
	can := cmp.Or(s.ready, &serve.Readiness{})
	can.Add("scheduler", serve.Serving(ctx))
	can.Add("storage", storage.ready)
	stopHTTP, err := s.Ports.ServeHTTP(ctx, s.HTTP, s.Callers, s.ownOnly(protect, s.HTTP),
		serve.Shown{Registry: registry, Ready: can, Pages: site(protect.Guard, pages)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopHTTP()) }()

	calls, err := s.Callers.Accept(sched.Watch(listener), server)
	if err != nil {
		return err
	}
	parts := &schedulerParts{calls, clients, server, health, sched, pages, storage.blobs.scrubber}
	return s.run(ctx, abort, parts, ready)
}

// undescribed are metrics of which some are not there yet when they are registered.
type undescribed struct{ prometheus.Collector }

// Describe implements prometheus.Collector.
func (undescribed) Describe(chan<- *prometheus.Desc) {}

// schedulerParts are what a Scheduler consists of while it runs.
type schedulerParts struct {
	listener net.Listener
	clients  *serve.Activity
	server   *intake.Server
	health   *health.Server
	sched    *scheduler.Server
	pages    *web.Site
	scrubber *disk.Scrubber // nil: none
}

// run has all parts run until ctx ends, or one of them fails. Once abort ends it waits for no call.
func (s *Scheduler) run(ctx, abort context.Context, p *schedulerParts, ready func(address string) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.server.Serve(p.listener) })
	if s.local != nil {
		group.Go(func() error { return p.server.Serve(p.sched.Watch(s.local)) })
	}
	group.Go(func() error { return p.sched.Run(groupCtx) })
	group.Go(func() error { return p.pages.Run(groupCtx) })
	if p.scrubber != nil {
		group.Go(func() error { p.scrubber.Run(groupCtx); return nil })
	}
	group.Go(func() error {
		<-groupCtx.Done()
		serve.StopGRPC(abort, p.server, p.health)
		return nil
	})
	var readyErr error
	if ready != nil {
		group.Go(func() error {
			if readyErr = ready(p.listener.Addr().String()); readyErr == nil && s.EndsWithReady {
				p.clients.WaitQuiet(ctx)
				stop()
			}
			return readyErr
		})
	}
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return readyErr // whatever it says, also when it came with the end of ctx
}

// remember fills in what outlives a scheduler: drains, quotas and what is known of sizes.
// ctx is the whole time that it serves.
func (s *Scheduler) remember(
	ctx context.Context, state *openState, sizes sizeclass.Options, o *scheduler.ServerOptions,
) (err error) {
	drains, quotas := s.durable(state.shared)
	if err := s.takeOver(ctx, state.hints, drains, quotas); err != nil {
		return err
	}
	if o.Drains, err = loadDrains(ctx, drains); err != nil {
		return err
	}
	o.KeepDrains = func(ds []event.DrainRecord) error { return keepDrains(ctx, drains, ds) }
	o.KeepQuota = quotas.keep
	shared := state.shared != nil // others may have it, too, or this one's place
	if len(o.Config.Quotas.Cohorts) > 0 {
		if o.Quotas, err = s.firstQuotas(ctx, quotas, shared); err != nil {
			return err
		}
	}
	if shared {
		o.LoadQuotas = quotas.load
		if o.Index, err = s.openIndex(state.shared); err != nil {
			return err
		}
		o.Held = o.Index.Load(ctx)
	}
	o.Sizes, err = s.openSizes(state.hints, sizes)
	return err
}

// resultHold is the scheduler's ResultHold: in a farm that is busy, the next action comes sooner, and
// each costs one call less.
const resultHold = time.Second

// schedulerConfig is what flags and the configuration file say.
type schedulerConfig struct {
	scheduler core.Config
	sizes     sizeclass.Options
	protect   serve.Protection
	logins    *login.Logins // nil: nobody logs in
}

func (s *Scheduler) configured() (c schedulerConfig, err error) {
	c.scheduler = s.Config
	c.scheduler.ResultHold = resultHold
	access := auth.Options{Logger: s.Logger}
	if access.RememberBytes, err = s.Callers.TokenBytes(); err != nil {
		return c, err
	}
	file, err := config.Read(s.ConfigFile)
	if err != nil {
		return c, fmt.Errorf("--config: %w", err)
	}
	file.Apply(&c.scheduler)
	file.Authorize(&access)
	if c.logins, err = s.openLogin(file); err != nil {
		return c, err
	}
	if c.logins != nil {
		access.Sessions = c.logins
	}
	c.sizes = file.LearnSizes
	c.protect, err = s.Ports.Protect(access)
	return c, err
}

// storageCalls bounds the calls to other storage at a time, which are short and small:
// with a round trip of 10 ms, two for an action, it is 12,800 actions a second.
const storageCalls = 256

// storagePatience is how long storage elsewhere may be silent before it is said that nothing is served.
const storagePatience = 5 * time.Second

// A storage is what the scheduler reads actions and results from.
type storage struct {
	register     func(grpc.ServiceRegistrar) // adds it to the scheduler's port; nil: it is elsewhere
	of           func(instance string, fn digest.Function) scheduler.Storage
	capabilities *repb.CacheCapabilities
	ready        func() error // says why it cannot be used now
	// grant returns what a worker shows to write the result of an action; nil: nothing.
	grant func(instance string, action digest.Digest) string
	// isolated: the blobs of instance names are kept apart. missingInputs returns what an action's lacks.
	isolated      bool
	missingInputs func(ctx context.Context, instance string, fn digest.Function, action *repb.Action) ([]digest.Digest, error)
	blobs         scrubbed // here; none if it is elsewhere
	close         func() error
}

// ownStore returns what tells of the blobs that are here; nil if they are elsewhere.
func (s *storage) ownStore() func() *admin.Store {
	if s.blobs.store == nil {
		return nil
	}
	return func() *admin.Store {
		stats := s.blobs.store.Stats()
		return &admin.Store{Bytes: stats.Bytes, MaxBytes: stats.MaxBytes, Blobs: stats.Blobs, Health: s.blobs.health()}
	}
}

// openStorage opens storage, or connects to it. guarded tells that callers are known by name.
func (s *Scheduler) openStorage(ctx context.Context, l scrubLoad, guarded bool) (*storage, error) {
	spec := s.Storage
	if spec == "" {
		spec = "dir:" + filepath.Join(s.Data, "storage")
	}
	if dir, ok := strings.CutPrefix(spec, "dir:"); ok {
		if s.ActionCache != "" {
			return nil, errors.New("tuning.action_cache: it is embedded with the storage; give the address of storage, too")
		}
		return s.embedStorage(dir, l, guarded)
	}
	if s.CacheWrites == CacheWritesClients {
		return nil, errors.New("--cache-writes: the action cache is elsewhere, and says itself who may write it")
	}
	if s.IsolateContent {
		return nil, errors.New("--isolate-content works with embedded storage only: --storage names another server, " +
			"which decides itself what each instance name sees")
	}
	s.Client.Logger = s.Logger
	remote, err := s.Client.OpenStorage(spec, s.ActionCache, casclient.Options{Logger: s.Logger, MaxConcurrent: storageCalls})
	if err != nil {
		return nil, err
	}
	answer, err := s.askStorage(ctx, remote)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask storage %s what it can: %w", spec, err), remote.Close())
	}
	return &storage{
		of: func(instance string, fn digest.Function) scheduler.Storage {
			return remote.WithInstance(instance, fn)
		},
		capabilities: answer.GetCacheCapabilities(),
		ready: func() error {
			limited, cancel := context.WithTimeout(ctx, serve.ProbePatience)
			defer cancel()
			_, err := repb.NewCapabilitiesClient(remote.Blobs).GetCapabilities(limited,
				&repb.GetCapabilitiesRequest{InstanceName: remote.Prefix})
			return err
		},
		close: remote.Close,
	}, nil
}

// askStorage returns what storage elsewhere can, when that answers. With a lease, which others who reach the
// storage could have, it waits for half of its time only.
func (s *Scheduler) askStorage(ctx context.Context, remote *dial.Storage) (*repb.ServerCapabilities, error) {
	request := &repb.GetCapabilitiesRequest{InstanceName: remote.Prefix}
	storage := repb.NewCapabilitiesClient(remote.Blobs)
	if s.Lease == "" {
		waits := time.AfterFunc(storagePatience, func() {
			s.Logger.Warn("storage does not answer; the scheduler does not serve before it does", zap.String("storage", s.Storage))
		})
		defer waits.Stop()
		return storage.GetCapabilities(ctx, request, grpc.WaitForReady(true))
	}
	limited, cancel := context.WithTimeout(ctx, s.leaseTime()/2)
	defer cancel()
	answer, err := storage.GetCapabilities(limited, request, grpc.WaitForReady(true))
	if err != nil {
		return nil, unanswered{err}
	}
	return answer, nil
}

// embedStorage opens a folder, to be served on the scheduler's own port.
func (s *Scheduler) embedStorage(dir string, l scrubLoad, guarded bool) (*storage, error) {
	if guarded && s.CacheWrites == CacheWritesClients {
		return nil, errors.New("--cache-writes: where callers are known by name, the right write_results below access " +
			"in the file of --config says who may write the action cache")
	}
	size, err := settings.ParseSize(s.CacheSize)
	if err != nil {
		return nil, fmt.Errorf("--cache-size: %w", err)
	}
	store, err := disk.Open(filepath.Join(dir, "cas"), disk.Options{
		MaxBytes: size, FreePercent: s.FreePercent, VerifyEvery: time.Duration(s.VerifyEvery),
		Isolate: s.IsolateContent, Logger: s.Logger, Metrics: l.metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	actions, err := disk.OpenActions(filepath.Join(dir, "actions"), disk.ActionsOptions{Logger: s.Logger})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open action cache: %w", err), store.Close())
	}
	blobs, err := s.Scrub.open(store, actions, l)
	if err != nil {
		return nil, errors.Join(err, actions.Close(), store.Close())
	}
	options := casserver.Options{
		Logger: s.Logger, AllowActionUpdates: guarded || s.CacheWrites == CacheWritesClients,
		Room: intake.Reserve,
	}
	var grant func(string, digest.Digest) string
	if !options.AllowActionUpdates {
		if options.Grants, err = casserver.OpenGrants(filepath.Join(dir, grantsFile)); err != nil {
			return nil, errors.Join(err, actions.Close(), store.Close())
		}
		grant = options.Grants.Of
	}
	served := casserver.New(store, actions, options)
	return &storage{
		grant:    grant,
		register: served.Register,
		of: func(instance string, _ digest.Function) scheduler.Storage {
			return embedded{served, instance}
		},
		isolated: served.Isolated(), missingInputs: served.MissingInputs,
		capabilities: served.CacheCapabilities(),
		blobs:        blobs,
		ready: func() error {
			return errors.Join(disk.Writable(store.TempDir()), disk.Writable(filepath.Join(dir, "actions", "tmp")))
		},
		close: func() error { return errors.Join(actions.Close(), store.Close()) },
	}, nil
}

// embedded is the scheduler's view of storage in its own process: no call goes over
// the network.
type embedded struct {
	served   *casserver.Server
	instance string
}

// Read implements scheduler.Storage.
func (e embedded) Read(ctx context.Context, d digest.Digest) ([]byte, error) {
	return e.served.ReadBlob(ctx, e.instance, d)
}

// GetActionResult implements scheduler.Storage.
func (e embedded) GetActionResult(ctx context.Context, d digest.Digest) (*repb.ActionResult, error) {
	return e.served.Lookup(ctx, e.instance, d)
}
