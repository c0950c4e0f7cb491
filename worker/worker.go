package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/prefetch"
	livepb "github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/historical"
	"github.com/forerunner-build/forerunner/worker/inputs"
	"github.com/forerunner-build/forerunner/worker/live"
	"github.com/forerunner-build/forerunner/worker/outputs"
	"github.com/forerunner-build/forerunner/worker/pipeline"
	"github.com/forerunner-build/forerunner/worker/policy"
	"github.com/forerunner-build/forerunner/worker/reuse"
	"github.com/forerunner-build/forerunner/worker/watch"
)

// Options are the identity of a Worker and its dependencies. All but Logger, Metrics, Platform,
// SizeClass and InstancePrefix are required.
type Options struct {
	// ID is the identity of this worker; each position adds names.PositionKey to it.
	ID map[string]string
	// InstancePrefix limits the worker to actions of this instance name and of
	// those below it. Empty: all.
	InstancePrefix string
	// Platform has the properties that actions may ask for, Require those that they must ask for;
	// nil is empty.
	Platform, Require *repb.Platform
	// SizeClass is the size relative to other workers; 0 for schedulers without size classes. It is
	// sent unchanged.
	SizeClass uint32

	Scheduler remoteworker.OperationQueueClient
	// CommandsCome asks the scheduler to send Commands with their actions if it has them, which
	// saves a call for each.
	CommandsCome bool
	// ResultsGo: the action cache is the scheduler's. Then results go there with the report of the
	// end, if the scheduler takes them, which saves a call for each.
	ResultsGo bool
	// Live is the scheduler's service for watching output of commands. Nil: output cannot be
	// watched. A scheduler that does not serve it is not Forerunner's, and gets no calls of the
	// positions beyond the slots.
	Live livepb.OutputsClient
	// Store has the blobs on this machine; Storage is the source of inputs and the destination of
	// outputs.
	Store   *disk.Store
	Storage *casclient.Client
	// Browser is the address of Buildbarn's pages, which show results that are not in the action
	// cache. Nil: such results are not stored.
	Browser *historical.Browser
	// Fetches has the fetches of blobs into Store.
	Fetches *fetch.Group
	// StoreHealth is the state of Store for pages, beyond its size. Nil: none.
	StoreHealth func() *livepb.StoreHealth
	// CacheAddress is the address at which a peer.Server serves Store to other workers. Empty: it
	// is not served.
	CacheAddress string
	// DialPeer connects to the address at which another worker serves its store, as the scheduler
	// names it. It must not wait for the other side. Nil: peers are not asked.
	DialPeer func(address string) (*grpc.ClientConn, error)
	Roots    *vfs.FS
	// Launchers start the commands, one for each slot.
	Launchers []*runner.Launcher
	// Relaunch replaces the launcher of a slot that died, or whose command cannot be killed. Nil:
	// the slot keeps failing.
	Relaunch func(ctx context.Context, slot int) (*runner.Launcher, error)
	// FetchWidth is how many actions beyond those in slots are accepted, to fetch
	// their inputs while they wait for a slot. 0: an action is accepted when a slot
	// is free.
	FetchWidth int
	// ReportWidth is how many actions may store their outputs without having a
	// slot. 0: a slot is free when the outputs of its action are stored.
	ReportWidth int
	// WorkDir is a folder for temporary files that only this Worker uses.
	WorkDir string
	// Checks test, besides WorkDir, whether the machine can run actions. While one fails the Worker
	// takes no action.
	Checks []health.Check

	// Profiles remember the reads of actions, for prefetching. Nil: none.
	Profiles *prefetch.Profiles
	// StorageHere: Store is that of the storage, too, so nothing has to be fetched.
	StorageHere bool
	// Limits limit prefetching for all actions together; nil means the defaults.
	Limits *prefetch.Limits

	// Reuse has exact records of runs, so that a run with a known outcome can be skipped. Nil:
	// none. It needs roots of FUSE.
	Reuse *reuse.Records
	// Shared are runs that workers share. Nil: there are none. It needs Reuse.
	Shared *reuse.Shared
	// Setting has further facts for the key of runs. It is required with Reuse.
	Setting Setting

	// Crew runs actions. Nil: each has a new goroutine.
	Crew *crew.Crew
	// Isolation is how commands run; it says whether the Launchers have a sandbox. Roots should
	// belong to Isolation.Users.Owner.
	Isolation policy.Defaults
	// MaxStall limits the time for which the clock of an action's timeout stands still because the
	// command waits for storage; 0 means an hour.
	MaxStall time.Duration
	// MaxOutputBytes limits each of stdout and stderr; 0 means 64 MiB.
	MaxOutputBytes int64
	// Outputs limits the outputs of an action.
	Outputs outputs.Policy
	Logger  *zap.Logger
	Metrics prometheus.Registerer
	// Tracer makes spans of the stages of actions, below those of the scheduler. Nil: none.
	Tracer trace.Tracer
}

const (
	defaultMaxOutputBytes = 64 << 20
	defaultMaxStall       = time.Hour
)

func (o *Options) validate() error {
	switch {
	case len(o.Launchers) == 0:
		return errors.New("worker needs at least one launcher")
	case len(o.ID) == 0:
		return errors.New("worker needs an identity")
	case o.Scheduler == nil || o.Store == nil || o.Storage == nil || o.Roots == nil:
		return errors.New("worker needs a scheduler, a store, storage and roots")
	case o.WorkDir == "":
		return errors.New("worker needs a work folder")
	case o.FetchWidth < 0 || o.ReportWidth < 0:
		return fmt.Errorf("worker has a negative width: fetch %d, report %d", o.FetchWidth, o.ReportWidth)
	}
	if err := instance.Check(o.InstancePrefix); err != nil {
		return fmt.Errorf("instance prefix: %w", err)
	}
	if err := errors.Join(o.checkReuse(), o.checkIsolation(), o.Outputs.Validate(o.Store.Stats().MaxBytes)); err != nil {
		return err
	}
	if o.MaxOutputBytes == 0 {
		o.MaxOutputBytes = defaultMaxOutputBytes
	}
	if o.MaxStall == 0 {
		o.MaxStall = defaultMaxStall
	}
	if o.Limits == nil {
		o.Limits = prefetch.NewLimits(prefetch.LimitsOptions{})
	}
	if o.Platform == nil {
		o.Platform = &repb.Platform{}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	o.Scheduler = &leaseClient{OperationQueueClient: o.Scheduler}
	return nil
}

// checkReuse rejects reuse if reads of commands are invisible, or if the worker's build is unknown.
func (o *Options) checkReuse() error {
	if o.Reuse != nil && o.Setting.Program == "" {
		return errors.New("results cannot be reused: the build of this worker is unknown")
	}
	if o.Reuse != nil && o.Roots.Method() != vfs.FUSE {
		return fmt.Errorf("results cannot be reused: with input roots of method %s the worker cannot see which inputs a command reads",
			o.Roots.Method())
	}
	return nil
}

// checkIsolation rejects, among others, one user of a range for several concurrent actions.
func (o *Options) checkIsolation() error {
	return o.Isolation.Check(o.FetchWidth + len(o.Launchers) + o.ReportWidth)
}

// A Worker runs actions. Make one with New and call Run once.
type Worker struct {
	opts      Options
	log       *zap.Logger
	metrics   *metrics
	refusals  *refusals
	pipeline  *pipeline.Pipeline
	health    *health.Monitor
	sizes     *inputs.Sizes
	live      *live.Outputs
	totals    totals
	uncharged *watch.Objects

	peers *peer.Pool
	// boot distinguishes this Worker from others with the same identity.
	boot string
	// hello are headers of each call to the scheduler.
	hello []string
	// how and own are the keys of how commands run; nil: nothing is reused. how is the same on
	// workers that run commands in the same way, own is this worker's.
	how, own []byte
	actions  atomic.Int64 // that it has
	// answered is the gRPC code of the last call to the scheduler, of any position: an error of all
	// positions is logged once.
	answered atomic.Uint32
	// refusal is why the last call to the scheduler failed; nil if it did not.
	refusal atomic.Pointer[error]
}

// Refused returns why the scheduler refused the last call, nil if it did not or no call has ended
// yet. It may be called concurrently.
func (w *Worker) Refused() error {
	if err := w.refusal.Load(); err != nil {
		return *err
	}
	return nil
}

// Unfit returns why the worker cannot run actions, nil if it can. It examines the worker now, and
// may be called concurrently. For a Worker that does not exist yet it returns that as the reason.
func (w *Worker) Unfit() error {
	if w == nil {
		return errors.New("the worker has not started yet")
	}
	_ = w.health.Examine() // records its findings
	return w.health.Reason()
}

// New checks the options and returns a Worker that does nothing until Run.
func New(o Options) (*Worker, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	monitor, err := health.New(o.WorkDir, o.Store, o.Isolation.Owners(), o.Checks, o.Logger)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics, len(o.Launchers), func() float64 {
		if monitor.Rests() != nil {
			return 1
		}
		return 0
	})
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	w := &Worker{
		opts: o, log: o.Logger, metrics: m, health: monitor,
		pipeline:  pipeline.New(o.Launchers, o.FetchWidth, o.ReportWidth, m.inStage),
		peers:     peer.NewPool(o.DialPeer, o.Logger),
		sizes:     inputs.NewSizes(),
		refusals:  newRefusals(),
		uncharged: watch.New(len(o.Launchers)),
	}
	w.boot = rand.Text()
	if o.Reuse != nil {
		w.how, w.own = w.opts.key(), w.opts.ownKey()
	}
	if w.hello, err = w.opts.hello(w.boot); err != nil {
		return nil, err
	}
	w.live = live.New(o.Live, w.report, o.Logger)
	return w, nil
}

// Run serves the scheduler until ctx is cancelled, which means drain: running
// actions are finished and reported, then Run returns nil. Cancelling abort as
// well stops running commands; their actions are then run elsewhere.
func (w *Worker) Run(ctx, abort context.Context) error {
	var wg, watched sync.WaitGroup
	if w.opts.Isolation.Sandboxed {
		w.uncharged.Begin()
	}
	positions, ids := w.makePositions()
	perSlot, further := positions[:len(w.opts.Launchers)], positions[len(w.opts.Launchers):]
	for _, p := range perSlot {
		wg.Go(func() { p.run(ctx, abort) })
	}
	wg.Go(func() {
		if len(further) == 0 || !w.live.Serves(w.withBoot(ctx)) {
			return
		}
		for _, p := range further {
			wg.Go(func() { p.run(ctx, abort) })
		}
	})
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer watched.Wait()
	defer stop() // actions during a drain can be watched, too
	watched.Go(func() { w.live.Run(w.withBoot(watching), w.opts.InstancePrefix, ids) })
	watched.Go(func() { w.health.Watch(watching) })
	w.log.Info("worker is ready", zap.Any("id", w.opts.ID), zap.Int("slots", len(w.opts.Launchers)),
		zap.Int("fetch_width", w.opts.FetchWidth), zap.Int("report_width", w.opts.ReportWidth),
		zap.Uint32("size_class", w.opts.SizeClass), zap.String("instance_prefix", w.opts.InstancePrefix))
	wg.Wait()
	w.peers.Close()
	w.log.Info("worker has drained")
	return nil
}

// makePositions makes all positions, with their identities. As many as there are slots call every
// scheduler. The further ones, with which actions prepare or store while others run, call only
// Forerunner's: others would count them as machines that are free.
func (w *Worker) makePositions() (positions []*position, ids []map[string]string) {
	for i := range w.pipeline.Size() {
		p := &position{
			w: w, id: w.positionID(i), index: i, called: make(chan struct{}, 1), log: w.log.With(zap.Int(names.PositionField, i)),
		}
		positions, ids = append(positions, p), append(ids, p.id)
	}
	w.live.OnCall(func(position int) {
		if position < len(positions) {
			select {
			case positions[position].called <- struct{}{}:
			default: // it is about to call
			}
		}
	})
	return positions, ids
}

// withBoot adds the identity of this start to calls with ctx.
func (w *Worker) withBoot(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, names.BootHeader, w.boot)
}

// workerName is the identity as ExecutedActionMetadata shows it.
func workerName(id map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(id)) {
		parts = append(parts, k+"="+id[k])
	}
	return strings.Join(parts, ",")
}

// positionID is the identity of a position.
func (w *Worker) positionID(index int) map[string]string {
	id := maps.Clone(w.opts.ID)
	id[names.PositionKey] = strconv.Itoa(index)
	return id
}
