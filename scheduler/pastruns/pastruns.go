package pastruns

import (
	"context"
	"fmt"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

const (
	// findTimeout bounds a search, waitTimeout its part that waits for others.
	findTimeout, waitTimeout = time.Second, findTimeout / 2
	// maxSearches run concurrently.
	maxSearches = 8
	// MaxCircumstances bounds the circumstances of one search.
	MaxCircumstances = 4
)

// unavailable is the outcome of a search that was not made, or took too long, also in storing its
// result.
const unavailable lookback.Outcome = "unavailable"

// Storage is the storage of one instance name.
type Storage interface {
	Read(ctx context.Context, d digest.Digest) ([]byte, error)
	// FindMissing returns the blobs in ds that it lacks. It verifies the others, so that no client
	// gets a result whose blobs turn out to be damaged.
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	// PutActionResult checks the result of an action, stores it, and does not change it. Its errors
	// are gRPC statuses.
	PutActionResult(ctx context.Context, action digest.Digest, result *repb.ActionResult) error
}

// Options are the options of a Finder. All but Metrics are required.
type Options struct {
	// SharedRuns has the runs that workers share.
	SharedRuns record.Hints
	Storage    func(instance string, fn digest.Function) Storage
	Logger     *zap.Logger
	Metrics    prometheus.Registerer
}

// A Finder finds earlier runs. A nil Finder finds none. Its methods may be called concurrently.
type Finder struct {
	options  Options
	careful  *record.Careful
	searches chan struct{} // has a token for each search
	cache    *cache
	outcomes *prometheus.CounterVec
}

// New returns a Finder.
func New(o Options) (*Finder, error) {
	f := &Finder{
		options: o, searches: make(chan struct{}, maxSearches), cache: newCache(),
		careful: record.NewCareful(nil, record.CarefulOptions{
			Timeout: findTimeout, Logger: o.Logger, Subject: "runs that workers share, or the storage,", Without: "workers look for runs to reuse",
		}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forerunner_scheduler_reuse_total",
			Help: "Actions for which the scheduler looked for an earlier run to reuse: reused, no worker got it; unknown, no run is known; " +
				"differs, an input of each run has changed; gone, its outputs are no longer in the storage; failed, an input could not be read; " +
				"unavailable, the search took too long, or was not made because others had.",
		}, []string{"outcome"}),
	}
	for _, o := range []lookback.Outcome{lookback.Reused, lookback.Unknown, lookback.Differs, lookback.Gone, lookback.Failed, unavailable} {
		f.outcomes.WithLabelValues(string(o))
	}
	if o.Metrics == nil {
		return f, nil
	}
	return f, o.Metrics.Register(f.outcomes)
}

// An Action is an action for which a run is searched.
type Action struct {
	Instance string
	Digest   digest.Digest
	Message  *repb.Action
	// Circumstances are those of the workers that may get it.
	Circumstances []string
	// Auxiliary are for the metadata of its result.
	Auxiliary []*anypb.Any
}

// Find returns a run whose result is also that of the action, and stores the result for the action.
// The caller may change it.
func (f *Finder) Find(ctx context.Context, a Action) (run lookback.Run, ok bool) {
	if f == nil || len(a.Circumstances) == 0 || a.Message.GetDoNotCache() {
		return lookback.Run{}, false
	}
	var outcome lookback.Outcome
	if !f.careful.Try(ctx, "find", names.AccountsBucket, func(ctx context.Context) (err error) {
		leave, err := f.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		run, outcome, err = f.search(ctx, a)
		return err
	}) {
		outcome = unavailable
	}
	if outcome == lookback.Reused {
		run.Result.ExecutionMetadata = a.metadata(run)
		outcome = f.keep(ctx, a, run.Result)
	}
	f.outcomes.WithLabelValues(string(outcome)).Inc()
	return run, outcome == lookback.Reused
}

// metadata returns the metadata of a result that is reused: it has no times and no worker.
func (a *Action) metadata(run lookback.Run) *repb.ExecutedActionMetadata {
	m := &repb.ExecutedActionMetadata{AuxiliaryMetadata: slices.Clone(a.Auxiliary)}
	reused := run.Metadata()
	reused.Scheduler = true
	if packed, err := anypb.New(reused); err == nil {
		m.AuxiliaryMetadata = append(m.AuxiliaryMetadata, packed)
	}
	return m
}

// keep stores a result as that of the action. The outcome is Reused only if the storage has checked
// the result, or takes none from the scheduler.
func (f *Finder) keep(ctx context.Context, a Action, result *repb.ActionResult) lookback.Outcome {
	outcome := unavailable
	f.careful.Try(ctx, "keep", names.AccountsBucket, func(ctx context.Context) error {
		err := f.options.Storage(a.Instance, a.Digest.Function()).PutActionResult(ctx, a.Digest, result)
		switch status.Code(err) {
		case codes.OK, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
			outcome = lookback.Reused
			return nil
		case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound:
			outcome = lookback.Failed
			return fmt.Errorf("%w: %w", record.ErrInvalid, err)
		}
		return err
	})
	return outcome
}

// enter waits until fewer searches run. An error says nothing about the storage.
func (f *Finder) enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	select {
	case f.searches <- struct{}{}:
		return func() { <-f.searches }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d searches run already", record.ErrInvalid, maxSearches)
	}
}

// search returns a run, if the outcome is Reused. An error means that the storage fails.
func (f *Finder) search(ctx context.Context, a Action) (run lookback.Run, o lookback.Outcome, err error) {
	fn := a.Digest.Function()
	root, err := digest.FromProto(fn, a.Message.GetInputRootDigest())
	reduced, ok := sharedruns.Reduced(fn, a.Message)
	if err != nil || !ok {
		return run, lookback.Failed, nil // the worker reports it
	}
	storage := f.options.Storage(a.Instance, fn)
	tree := lookback.Tree{Root: root, Source: &source{storage: storage, instance: a.Instance, cache: f.cache}}
	o = lookback.Unknown
	for _, circumstances := range a.Circumstances {
		known, err := sharedruns.Load(ctx, f.options.SharedRuns, sharedruns.Key(a.Instance, reduced, []byte(circumstances)))
		if err != nil {
			return run, lookback.Failed, err
		}
		run, _, next, _ := tree.Match(ctx, sharedruns.ValidRuns(fn, known), storage)
		if err := ctx.Err(); err != nil {
			return run, lookback.Failed, err
		}
		if next == lookback.Reused {
			return run, next, nil
		}
		if o == lookback.Unknown {
			o = next
		}
	}
	return run, o, nil
}
