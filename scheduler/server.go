package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
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
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/journal"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// ServerOptions configure a Server. Storage is required.
type ServerOptions struct {
	// Storage returns the storage of an instance name, for one digest function.
	// It is called once for each Execute and should be cheap.
	Storage func(instance string, fn digest.Function) Storage
	// CacheCapabilities go into the answer of GetCapabilities. Nil: none.
	CacheCapabilities *repb.CacheCapabilities
	Config            core.Config
	// Grant returns what a worker shows to storage to write the result of an action that it
	// was given (Grants of cas). Nil: workers need nothing, or are known otherwise.
	Grant func(instance string, action digest.Digest) string
	// MissingInputs returns, before an action is queued, what its instance name does not have of its inputs. Its errors
	// are gRPC statuses. Nil: workers find out what is missing.
	MissingInputs func(ctx context.Context, instance string, fn digest.Function, action *repb.Action) ([]digest.Digest, error)
	// Logger takes one Info line for each operation, at its end. Nil: no log.
	Logger *zap.Logger
	// Metrics is where the metrics are registered. Nil: nowhere.
	Metrics prometheus.Registerer
	// Tracer makes spans of operations, which those of clients and workers join by W3C
	// trace context. Nil: the client's goes to the worker as it is.
	Tracer trace.Tracer
	// Sizes chooses the size class on which an action starts. Nil: the largest.
	Sizes *sizeclass.Analyzer
	// Rand is where the names of operations come from. Nil: crypto/rand.
	Rand io.Reader
	// Journal takes down what happens until Run ends. Nil: nothing does.
	Journal *journal.Journal
	// Term grows from each Server to the next that takes its place; see records.Lease. If it is not 0,
	// all answers to workers have it in the header names.TermHeader, so that they take none of a
	// Server that does not know yet that it is over.
	Term uint64
	// Pages is the URL below which an operation's name is that of its page. Clients whose operation
	// has failed are told of it. Empty: they are not.
	Pages string
	// Drains are in force from the start. KeepDrains is given those in force after
	// each change, one call at a time, so that a later Server can have them. Nil: they
	// end with this one.
	Drains     []core.DrainRecord
	KeepDrains func([]core.DrainRecord) error
	// Held are taken over at the start: see State.Restore. Index is what remembers them for the next Server.
	// Nil: nothing does.
	Held  []core.Held
	Index *Index
	// Quotas are in force from the start; those of unknown cohorts are left out, with a
	// warning. KeepQuota is given each that changes, one call at a time; no minimum and no
	// maximum: it was deleted. Nil: changes end with this Server.
	Quotas    []core.QuotaRecord
	KeepQuota func(context.Context, core.QuotaRecord) error
	// LoadQuotas returns those that are kept now, where others may change them, too: it is called again and
	// again, and what it returns is put in force. Nil: nobody else does.
	LoadQuotas func(context.Context) ([]core.QuotaRecord, error)
	// OwnStore tells of the storage of this process. Nil: it has none.
	OwnStore func() *admin.Store
}

// A Server serves a State over gRPC. It answers calls from the moment it is
// registered; Run must be running for time to pass. It only joins its parts, each of which has a job.
type Server struct {
	options ServerOptions
	log     *zap.Logger
	engine  *engine
	// connections counts those that were ever made, to name them.
	connections atomic.Uint64

	requests  *requests
	learning  *learning
	endings   *endings
	live      *liveOutputs
	quotas    *quotas
	follows   *operations
	execution executionService
	queue     queueService
	admin     adminService
}

// NewServer returns a Server, or an error that names the option that is wrong.
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
	s := &Server{options: o, log: o.Logger, engine: newEngine(state, o.Journal)}
	m, err := newMetrics(o.Metrics, s.engine)
	if err != nil {
		return nil, fmt.Errorf("scheduler: register metrics: %w", err)
	}
	s.join(m, state.Config())
	return s, s.begin()
}

// join makes the parts.
func (s *Server) join(m *metrics, c core.Config) {
	o, e, spans := &s.options, s.engine, tracing{s.options.Tracer}
	near, lost := &neighbours{}, &lostWorkers{}
	s.live = &liveOutputs{}
	s.follows = &operations{engine: e, pages: o.Pages}
	s.requests = &requests{
		config: c, storage: o.Storage, missingInputs: o.MissingInputs, rand: o.Rand, claims: c.Claims(),
		platforms: &platforms{ignored: c.ActionProperties},
	}
	s.learning = &learning{engine: e, sizes: o.Sizes, chosen: m.chosen, log: s.log, waiting: make(chan *sizeclass.Lesson, maxLessons)}
	s.endings = &endings{log: s.log, metrics: m, tracing: spans, neighbours: near, lost: lost}
	s.quotas = &quotas{engine: e, log: s.log, keep: o.KeepQuota, load: o.LoadQuotas}
	s.execution = executionService{
		operations: s.follows, requests: s.requests, learning: s.learning, endings: s.endings, tracing: spans, log: s.log,
	}
	s.queue = queueService{engine: e, platforms: s.requests.platforms, neighbours: near, term: o.Term, grant: o.Grant, twins: &twins{}, log: s.log}
	s.admin = adminService{
		workersAdmin: &workersAdmin{engine: e, live: s.live, lost: lost, keep: o.KeepDrains},
		queuesAdmin:  queuesAdmin{e, lost}, operationsAdmin: operationsAdmin{e}, quotas: s.quotas,
		sizesAdmin: sizesAdmin{s.requests, s.learning}, storesAdmin: storesAdmin{o.OwnStore, s.live},
	}
	e.concluded = func(out core.Out) {
		for _, worker := range out.Wakes {
			s.live.wake(worker)
		}
		s.learning.learn(out.Ended)
		s.endings.conclude(out)
	}
}

// begin tells the State what is known from before.
func (s *Server) begin() error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	for _, d := range s.options.Drains {
		if err := s.engine.feedLocked(time.Now(), core.Drain{DrainRecord: d}).Err; err != nil {
			return fmt.Errorf("scheduler: %w", err)
		}
	}
	for _, q := range s.options.Quotas {
		if err := s.engine.feedLocked(time.Now(), core.PutQuota{QuotaRecord: q}).Err; err != nil {
			s.log.Warn("quota is not in force", zap.Error(err))
		}
	}
	for _, h := range s.options.Held {
		s.engine.feedLocked(time.Now(), core.Restore{Held: h})
	}
	return nil
}

// Register adds all services of the scheduler to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	repb.RegisterExecutionServer(g, s.execution)
	repb.RegisterCapabilitiesServer(g, capabilitiesService{s.options.CacheCapabilities})
	longrunningpb.RegisterOperationsServer(g, s.Operations())
	remoteworker.RegisterOperationQueueServer(g, s.queue)
	admin.RegisterSchedulerServer(g, s.Admin())
	live.RegisterOutputsServer(g, outputsService{live: s.live, stopped: s.engine.stopped})
}

// Admin returns what Register serves operators, for callers in this process.
func (s *Server) Admin() admin.SchedulerServer { return s.admin }

// Operations returns what Register serves of longrunning Operations, for callers in this process.
func (s *Server) Operations() longrunningpb.OperationsServer {
	return operationsService{engine: s.engine}
}

// ByteStream returns next so changed that what commands print can be read while
// they run, under the names in the metadata of their operations. All else is
// next's.
func (s *Server) ByteStream(next bytestream.ByteStreamServer) bytestream.ByteStreamServer {
	return streamService{next, s.follows, s.live}
}

// Watch returns l so changed that the Server knows the connections of its workers
// and clients. It learns from it at once when a worker is gone, and counts the
// operations of each client. Give it to the gRPC server in place of l.
func (s *Server) Watch(l net.Listener) net.Listener { return &listener{l, s.engine, &s.connections} }

// Run lets time pass until ctx is cancelled, and returns nil. From then on every
// call that waits, and every new one, is answered with UNAVAILABLE: clients
// come back with WaitExecution, workers with what they have in hand. A Server
// runs once.
func (s *Server) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	if s.options.Sizes != nil {
		beside.Go(func() { s.learning.write(ctx) })
	}
	if len(s.requests.config.Quotas.Cohorts) > 0 {
		beside.Go(func() { s.quotas.watchPromises(ctx) })
		if s.options.LoadQuotas != nil {
			beside.Go(func() { s.quotas.follow(ctx) })
		}
	}
	if s.options.Index != nil {
		beside.Go(func() { s.options.Index.keep(ctx, s.engine) })
	}
	s.engine.run(ctx)
	return nil
}

// Counts returns the present sizes of the queues.
func (s *Server) Counts() (c core.Counts) {
	s.engine.look(func(v *core.View) { c = v.Counts() })
	return c
}
