package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	outputs "github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/connection"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/finished"
	"github.com/forerunner-build/forerunner/scheduler/journal"
	"github.com/forerunner-build/forerunner/scheduler/learning"
	"github.com/forerunner-build/forerunner/scheduler/live"
	"github.com/forerunner-build/forerunner/scheduler/operation"
	"github.com/forerunner-build/forerunner/scheduler/operators"
	"github.com/forerunner-build/forerunner/scheduler/pastruns"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// Storage is a Server's view of the storage.
type Storage = operation.Storage

// ServerOptions configure a Server. Storage is required.
type ServerOptions struct {
	// Storage returns the storage of an instance name, for one digest function.
	// It is called once for each Execute and should be cheap.
	Storage func(instance string, fn digest.Function) Storage
	// CacheCapabilities returns the cache part of GetCapabilities; a nil result means that the
	// capabilities of the storage are still unknown. A nil CacheCapabilities means that there are
	// none.
	CacheCapabilities func() *repb.CacheCapabilities
	// StorageHere: Storage reads without a network call. Then workers that ask for it get Commands
	// with their actions.
	StorageHere bool
	Config      tuning.Config
	// Grant returns the grant with which a worker may write the result of its action (Grants of
	// cas). Nil: workers need none, or are authenticated.
	Grant func(instance string, action digest.Digest) string
	// PutResult writes the result of an action to the action cache, for the caller of ctx if it
	// presents the Grant: that saves the worker a call. Nil: workers do it.
	PutResult func(ctx context.Context, instance string, action digest.Digest, result *repb.ActionResult) error
	// MissingInputs returns, before an action is queued, the inputs that its instance name lacks.
	// Its errors are gRPC statuses. Nil: workers find missing inputs.
	MissingInputs func(ctx context.Context, instance string, fn digest.Function, action *repb.Action) ([]digest.Digest, error)
	// Logger gets one Info line for each operation, at its end. Nil: no log.
	Logger *zap.Logger
	// Metrics is the registry for the metrics. Nil: they are not registered.
	Metrics prometheus.Registerer
	// Tracer makes spans of operations, to which clients and workers connect theirs by W3C trace
	// context. Nil: the worker gets the client's trace context unchanged.
	Tracer trace.Tracer
	// Sizes chooses the size class on which an action starts. Nil: the largest.
	Sizes *sizeclass.Analyzer
	// PastRuns finds earlier runs whose results are also those of new actions. Nil: only workers do.
	PastRuns *pastruns.Finder
	// Rand is the random source for the names of operations. Nil: crypto/rand.
	Rand io.Reader
	// Journal records events until Run ends. Nil: no recording.
	Journal *journal.Journal
	// Term increases from each Server to the one that replaces it; see records.Lease. If it is not
	// 0, all answers to workers carry it in the header names.TermHeader, so that workers ignore a
	// replaced Server that does not know it yet.
	Term uint64
	// Pages is the URL of operations' pages, which ends before an operation's name. Messages of
	// failed operations link to it. Empty: they do not.
	Pages string
	// FirstUpdate is how long the client of a new operation gets only its end, which saves the other
	// messages of a short one. 0: it gets every state at once.
	FirstUpdate time.Duration
	// Drains are active from the start. KeepDrains is called with the active drains after each
	// change, one call at a time, to save them for the next Server. Nil: they end with this one.
	Drains     []drain.Record
	KeepDrains func([]drain.Record) error
	// Held are adopted at the start: see State.Restore. Index stores them for the next Server. Nil:
	// they are not stored.
	Held  []event.Held
	Index *Index
	// Expected are the workers of the previous Server; see KeepWorkers. When all of them have
	// called, actions are assigned, even if Config.Settle has not passed. Empty: there were none.
	// Nil: unknown.
	Expected []WorkerSum
	// KeepWorkers is called with the present workers after changes, one call at a time. Nil: they
	// are not saved.
	KeepWorkers func([]WorkerSum) error
	// Quotas are active from the start; those of unknown cohorts are omitted, with a warning.
	// KeepQuota is called with each changed quota, one call at a time; a quota without minimum and
	// maximum was deleted. Nil: changes end with this Server.
	Quotas    []quota.Record
	KeepQuota func(context.Context, quota.Record) error
	// LoadQuotas returns the stored quotas, which other schedulers may change, too: it is called
	// periodically, and its result becomes active. Nil: nobody else changes them.
	LoadQuotas func(context.Context) ([]quota.Record, error)
	// Finished makes records of completed operations, and shows them. Nil: they are forgotten after
	// Config.KeepCompleted.
	Finished *finished.Recorder
	// OwnStore returns the state of this process's storage. Nil: it has none.
	OwnStore func() *admin.Store
}

// A Server serves a State over gRPC. It answers calls from the moment it is registered; Run must be
// running for time to pass. It only connects its parts, each of which has one job.
type Server struct {
	options ServerOptions
	log     *zap.Logger
	engine  *engine.Engine
	// connections are those of clients and workers.
	connections *connection.Listeners

	requests  *operation.Requests
	learning  *learning.Learning
	endings   *endings
	live      *live.Registry
	roster    *roster
	follows   *operations
	execution *executionService
	queue     queueService
	admin     operators.Service
}

// NewServer returns a Server, or an error that names the invalid option.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Storage == nil {
		return nil, errors.New("scheduler: option Storage is required")
	}
	state, err := core.NewState(o.Config)
	if err != nil {
		return nil, err
	}
	if err := o.Journal.Start(time.Now(), state); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	s := &Server{options: o, log: o.Logger, engine: engine.New(state, o.Journal)}
	s.connections = connection.NewListeners(func(id uint64) { s.engine.Feed(event.Disconnect{Connection: id}) })
	s.live = live.NewRegistry()
	m, err := newMetrics(o.Metrics, s.engine)
	if err != nil {
		return nil, fmt.Errorf("scheduler: register metrics: %w", err)
	}
	s.join(m, state.Config())
	return s, s.begin()
}

// join makes the parts.
func (s *Server) join(m *metrics, c tuning.Config) {
	o, e, spans := &s.options, s.engine, tracing{s.options.Tracer}
	peers, lost := &peers{}, &operators.Lost{}
	s.follows = &operations{Engine: e, pages: o.Pages, patience: o.FirstUpdate}
	s.requests = operation.NewRequests(operation.Options{Config: c, Storage: o.Storage, MissingInputs: o.MissingInputs, Rand: o.Rand})
	s.learning = learning.New(learning.Options{Engine: e, Sizes: o.Sizes, Chosen: m.chosen, Log: s.log})
	s.endings = &endings{log: s.log, metrics: m, tracing: spans, peers: peers, lost: lost, records: o.Finished}
	s.execution = &executionService{
		operations: s.follows, requests: s.requests, learning: s.learning, endings: s.endings, tracing: spans, pastRuns: o.PastRuns, log: s.log,
	}
	s.roster = newRoster(e, o)
	s.queue = queueService{
		Engine: e, roster: s.roster, platforms: s.requests.Platforms(), peers: peers, term: o.Term, grant: o.Grant, putResult: o.PutResult, twins: newTwins(),
		records: o.Finished, log: s.log,
	}
	if o.StorageHere {
		s.queue.storage = s.requests.StorageOf
	}
	s.admin = operators.New(operators.Options{
		Engine: e, Reports: s.live, Sizes: learning.Admin{Requests: s.requests, Learning: s.learning}, Lost: lost, Log: s.log,
		KeepDrains: o.KeepDrains, KeepQuota: o.KeepQuota, LoadQuotas: o.LoadQuotas, OwnStore: o.OwnStore, Finished: o.Finished,
	})
	e.Conclude(func(out event.Out) {
		for _, worker := range out.Wakes {
			s.live.Wake(worker)
		}
		for _, gone := range out.Departures {
			s.roster.departed(gone.Worker)
		}
		s.learning.Learn(out.Ended)
		s.endings.conclude(out)
	})
}

// begin restores the State.
func (s *Server) begin() (err error) {
	s.engine.Under(func(t engine.Turn) {
		for _, d := range s.options.Drains {
			if wrong := t.Feed(core.Drain{Record: d}).Err; wrong != nil {
				err = fmt.Errorf("scheduler: %w", wrong)
				return
			}
		}
		for _, q := range s.options.Quotas {
			if wrong := t.Feed(core.PutQuota{Record: q}).Err; wrong != nil {
				s.log.Warn("quota is not in force", zap.Error(wrong))
			}
		}
		for _, h := range s.options.Held {
			t.Feed(event.Restore{Held: h})
		}
		if s.roster.nobody() {
			t.Feed(event.Settle{})
		}
	})
	return err
}

// Register adds all services of the scheduler to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	repb.RegisterExecutionServer(g, s.execution)
	repb.RegisterCapabilitiesServer(g, capabilitiesService{s.options.CacheCapabilities})
	longrunningpb.RegisterOperationsServer(g, s.Operations())
	remoteworker.RegisterOperationQueueServer(g, s.queue)
	admin.RegisterSchedulerServer(g, s.Admin())
	outputs.RegisterOutputsServer(g, s.live.Service(s.engine.Stopped()))
}

// Admin returns the service for operators, for callers in this process.
func (s *Server) Admin() admin.SchedulerServer { return s.admin }

// Operations returns the longrunning Operations service, for callers in this process.
func (s *Server) Operations() longrunningpb.OperationsServer {
	return operationsService{Engine: s.engine}
}

// ByteStream returns next with streams for the output of running commands, under the names in the
// metadata of their operations. All other requests go to next.
func (s *Server) ByteStream(next bytestream.ByteStreamServer) bytestream.ByteStreamServer {
	return s.live.ByteStream(next, s.follows.watch)
}

// Watch wraps l so that the Server knows the connections of its workers and clients. From them it
// learns at once when a worker is gone, and counts the operations of each client. Give the result
// to the gRPC server instead of l.
func (s *Server) Watch(l net.Listener) net.Listener { return s.connections.Watch(l) }

// Open is Watch for calls that come through no listener: it returns the address that they come
// from. Their caller calls closed when it ends them, before it does.
func (s *Server) Open(remote net.Addr) (from net.Addr, closed func()) {
	return s.connections.Open(remote)
}

// Run serves until ctx is cancelled, and returns nil. From then on every waiting and every new call
// gets UNAVAILABLE: clients come back with WaitExecution, workers with their actions. A Server runs
// once.
func (s *Server) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	if s.options.Sizes != nil {
		beside.Go(func() { s.learning.Write(ctx) })
	}
	if len(s.requests.Config().Quotas.Cohorts) > 0 {
		beside.Go(func() { s.admin.WatchPromises(ctx) })
		if s.options.LoadQuotas != nil {
			beside.Go(func() { s.admin.FollowQuotas(ctx) })
		}
	}
	if s.options.KeepWorkers != nil {
		beside.Go(func() { s.roster.run(ctx) })
	}
	if s.options.Index != nil {
		beside.Go(func() { s.options.Index.keep(ctx, s.engine) })
	}
	if s.options.Finished != nil {
		last, end := context.WithCancel(context.WithoutCancel(ctx)) // operations that end with the engine have a record, too
		defer end()
		beside.Go(func() { s.options.Finished.Run(last) })
	}
	s.engine.Run(ctx)
	return nil
}

// Counts returns the present sizes of the queues.
func (s *Server) Counts() (c view.Counts) {
	s.engine.Look(func(v *core.View) { c = v.Counts() })
	return c
}
