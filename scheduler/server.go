package scheduler

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/journal"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// Storage is what a Server needs of the storage; a Client of cas/client has it. What is
// not there is an error for which errors.Is(err, digest.ErrNotFound) holds.
type Storage interface {
	Read(ctx context.Context, d digest.Digest) ([]byte, error)
	GetActionResult(ctx context.Context, d digest.Digest) (*repb.ActionResult, error)
}

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
	Drains     []core.Pattern
	KeepDrains func([]core.Pattern) error
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
// registered; Run must be running for time to pass.
type Server struct {
	options ServerOptions
	config  core.Config
	log     *zap.Logger
	metrics *metrics

	// stopped is closed when Run returns.
	stopped chan struct{}
	// alarm has a value when State's next tick has come before the one that Run waits for.
	alarm chan struct{}
	// lessons wait to be written by Run.
	lessons chan *sizeclass.Lesson
	// connections counts those that were ever made, to name them.
	connections atomic.Uint64
	// keeping is held while drains are kept, keepingQuotas while a quota is changed and kept.
	keeping, keepingQuotas sync.Mutex

	// claims are the names of those that levels ask for.
	claims []string

	platforms platforms
	tools     tools
	live      liveOutputs
	lost      lostWorkers
	// neighbours are told workers with their actions.
	neighbours neighbours

	mu    sync.Mutex
	state *core.State
	// tick is when State wants to be called next, awaited when Run will do so; zero: never.
	tick, awaited time.Time
	// streams are those who follow an operation; held are the calls of Synchronize that
	// wait, each with room for its one reply.
	streams map[string]followers
	held    map[uint64]chan core.Reply
	calls   uint64
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
	s := &Server{
		options: o,
		config:  state.Config(),
		log:     o.Logger,
		stopped: make(chan struct{}),
		alarm:   make(chan struct{}, 1),
		lessons: make(chan *sizeclass.Lesson, maxLessons),
		claims:  o.Config.Claims(),
		state:   state,
		streams: map[string]followers{},
		held:    map[uint64]chan core.Reply{},
	}
	if s.metrics, err = newMetrics(o.Metrics, s); err != nil {
		return nil, fmt.Errorf("scheduler: register metrics: %w", err)
	}
	return s, s.begin()
}

// begin tells the State what is known from before.
func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.options.Drains {
		if err := s.feedLocked(time.Now(), core.Drain{Pattern: p}).Err; err != nil {
			return fmt.Errorf("scheduler: %w", err)
		}
	}
	for _, q := range s.options.Quotas {
		if err := s.feedLocked(time.Now(), core.PutQuota{QuotaRecord: q}).Err; err != nil {
			s.log.Warn("quota is not in force", zap.Error(err))
		}
	}
	for _, h := range s.options.Held {
		s.feedLocked(time.Now(), core.Restore{Held: h})
	}
	return nil
}

// Register adds all services of the scheduler to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	repb.RegisterExecutionServer(g, executionService{s})
	repb.RegisterCapabilitiesServer(g, capabilitiesService{s})
	longrunningpb.RegisterOperationsServer(g, s.Operations())
	remoteworker.RegisterOperationQueueServer(g, queueService{Server: s})
	admin.RegisterSchedulerServer(g, s.Admin())
	live.RegisterOutputsServer(g, outputsService{Server: s})
}

// Run lets time pass until ctx is cancelled, and returns nil. From then on every
// call that waits, and every new one, is answered with UNAVAILABLE: clients
// come back with WaitExecution, workers with what they have in hand. A Server
// runs once.
func (s *Server) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	if s.options.Sizes != nil {
		beside.Go(func() { s.writeLessons(ctx) })
	}
	if len(s.config.Quotas.Cohorts) > 0 {
		beside.Go(func() { s.watchPromises(ctx) })
		if s.options.LoadQuotas != nil {
			beside.Go(func() { s.followQuotas(ctx) })
		}
	}
	if s.options.Index != nil {
		beside.Go(func() { s.keepIndex(ctx) })
	}
	defer s.stop()
	defer s.step(func(now time.Time) core.Out {
		out := s.feedLocked(now, core.Tick{})
		s.options.Journal.End(now, s.state)
		return out
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			s.feed(core.Tick{})
		case <-s.alarm:
		}
		s.mu.Lock()
		next := s.tick
		s.awaited = next
		s.mu.Unlock()
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// Counts returns the present sizes of the queues.
func (s *Server) Counts() core.Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.View().Counts()
}

// gauges is Counts, and for each queue, and what has happened.
func (s *Server) gauges() (core.Counts, []core.QueueView, core.Tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.View().Counts(), s.state.View().QueueCounts(), s.state.View().Tally()
}

// errStopped is what calls get when the scheduler ends.
func errStopped() error {
	return status.Error(codes.Unavailable, "the scheduler is shutting down")
}

func (s *Server) isStopped() bool {
	select {
	case <-s.stopped:
		return true
	default:
		return false
	}
}

// A delivery is one Out with the addresses filled in.
type delivery struct {
	out core.Out
	// calls are where out.Replies go, in their order; nil where nobody waits any more.
	calls []chan core.Reply
}

// feed tells the state of one event and then does what it says.
func (s *Server) feed(e core.Event) (out core.Out) {
	s.step(func(now time.Time) core.Out {
		out = s.feedLocked(now, e)
		return out
	})
	return out
}

// feedLocked tells the state, and the journal, of one event. The caller does what it says.
func (s *Server) feedLocked(now time.Time, e core.Event) core.Out {
	s.options.Journal.Event(now, e)
	out := s.state.Step(now, e)
	s.options.Journal.Answer(out)
	return out
}

// step has an event happen under the lock and then, without the lock, does what the state says.
func (s *Server) step(event func(now time.Time) core.Out) {
	s.mu.Lock()
	d := s.deliverLocked(event(time.Now()))
	// To be called too early does no harm, and costs less than to wake Run at each event.
	early := !s.tick.IsZero() && (s.awaited.IsZero() || s.tick.Before(s.awaited))
	s.mu.Unlock()

	if early {
		select {
		case s.alarm <- struct{}{}:
		default:
		}
	}
	s.learn(d.out.Ended)
	for i, c := range d.calls {
		if c != nil {
			c <- d.out.Replies[i]
		}
	}
	for i := range d.out.Notices {
		if st := &d.out.Notices[i]; st.Done() {
			s.finished(st)
		}
	}
	for _, gone := range d.out.Departures {
		s.departed(gone)
	}
}

// accept is step for an event that begins something. False: the Server has stopped, and nothing was done.
func (s *Server) accept(event func(now time.Time) core.Out) (accepted bool) {
	s.step(func(now time.Time) core.Out {
		if s.isStopped() {
			return core.Out{NextTick: s.tick}
		}
		accepted = true
		return event(now)
	})
	return accepted
}

// deliverLocked tells those who follow operations, and finds out whose calls are answered.
func (s *Server) deliverLocked(out core.Out) delivery {
	d := delivery{out: out}
	s.tick = out.NextTick
	for _, r := range out.Replies {
		d.calls = append(d.calls, s.held[r.Call])
		delete(s.held, r.Call)
	}
	for i := range out.Notices {
		notice := &out.Notices[i]
		for m := s.streams[notice.Name].first; m != nil; m = m.next {
			m.put(notice)
		}
	}
	return d
}

// stop answers all who wait. From then on nothing is accepted: a result of which a worker was told that
// it may forget it has been delivered.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.stopped)
	for _, f := range s.streams {
		for m := f.first; m != nil; m = m.next {
			m.close()
		}
	}
}

// newName returns a name for an operation: a random UUID, so that nobody can
// guess what others have running.
func (s *Server) newName() (string, error) {
	var u [16]byte
	if _, err := io.ReadFull(s.options.Rand, u[:]); err != nil {
		return "", fmt.Errorf("name an operation: %w", err)
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	var room [len("operations/00000000-0000-0000-0000-000000000000")]byte
	name := append(room[:0], "operations/"...)
	for i, part := range [...][]byte{u[:4], u[4:6], u[6:8], u[8:10], u[10:]} {
		if i > 0 {
			name = append(name, '-')
		}
		name = hex.AppendEncode(name, part)
	}
	return string(name), nil
}

// departed logs the end of a worker.
func (s *Server) departed(d core.Departure) {
	s.neighbours.serves(d.Worker, "")
	if d.Drained {
		s.log.Debug("worker has left", zap.String("worker", d.Worker))
		return
	}
	s.metrics.lost.Inc()
	s.lost.add(time.Now(), d)
	s.log.Warn("worker lost: it has not called in time",
		zap.String("worker", d.Worker), zap.String("action", d.Action))
}
