package worker

import (
	"context"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/sharedruns"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/ahead"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// lookAhead starts to prefetch files that similar actions read, if there is anything to read.
func (a *action) lookAhead(ctx context.Context) {
	o := &a.w.opts
	root, err := digest.FromProto(a.fn, a.message.GetInputRootDigest())
	if o.Profiles == nil || o.Roots.Method() == vfs.HardLink || err != nil || root.IsEmptyBlob() {
		return
	}
	a.ahead = ahead.Start(ctx, ahead.Spec{
		Action: ahead.Similar(a.instance, a.fn, a.message, a.task.desired.GetAuxiliaryMetadata()),
		Root:   root, Inputs: a.inputs, Profiles: o.Profiles, Limits: o.Limits,
		Held: a.mayBeReused(), Here: o.StorageHere,
	})
}

// endRace stops the prefetch. It may be called again.
func (a *action) endRace() {
	if a.ahead.End() {
		a.w.metrics.observeRace(a.ahead.Origin().String(), a.ahead.Figures())
		a.w.totals.count(a.ahead.Figures())
	}
}

// mayBeReused reports whether the result of an earlier run may be reused.
func (a *action) mayBeReused() bool {
	return a.w.opts.Reuse != nil && !a.message.GetDoNotCache() && !a.wantsRun()
}

// lookBack returns the response of an earlier run if it ran in the same way and saw no input that
// has changed since; otherwise nil.
func (a *action) lookBack(ctx context.Context) *repb.ExecuteResponse {
	records := a.w.opts.Reuse
	if records == nil || a.message.GetDoNotCache() {
		return nil
	}
	key, ok := reuse.KeyOf(a.instance, a.fn, a.message, a.w.own)
	root, err := digest.FromProto(a.fn, a.message.GetInputRootDigest())
	if !ok || err != nil {
		return nil // the input root reports the error
	}
	a.former = records.Attempt(key, lookback.Tree{Root: root, Source: a.inputs})
	if reduced, ok := sharedruns.Reduced(a.fn, a.message); ok && a.w.opts.Shared != nil {
		a.former.Share(a.w.opts.Shared, reuse.Claim{
			Instance: a.instance, Action: a.digest, Reduced: reduced, How: a.w.how, Grant: a.task.grant,
		})
	}
	if !a.wantsRun() {
		a.former.Find(ctx, vouchingStorage{a.storage})
	}
	a.w.metrics.reuse.WithLabelValues(string(a.former.Outcome())).Inc()
	run, ok := a.former.Reused()
	if !ok {
		return nil
	}
	return &repb.ExecuteResponse{Result: run.Result, CachedResult: true, Message: run.Message()}
}

// A vouchingStorage is asked about blobs that a result will name. It verifies blobs before it
// reports them as present, so that no client gets a result whose blobs turn out to be damaged on
// reading.
type vouchingStorage struct{ *casclient.Client }

// FindMissing implements lookback.Storage.
func (s vouchingStorage) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return s.Client.FindMissing(casclient.Vouched(ctx), ds)
}

// wantsRun reports whether the scheduler says that the client wants its command to run.
func (a *action) wantsRun() bool {
	for _, packed := range a.task.desired.GetAuxiliaryMetadata() {
		var m actionstats.Request
		if packed.MessageIs(&m) && packed.UnmarshalTo(&m) == nil && m.GetSkipCacheLookup() {
			return true
		}
	}
	return false
}

// rememberRun records the run of another worker whose result was reused.
func (a *action) rememberRun(ctx context.Context) {
	if err := a.former.Remember(ctx); err != nil {
		a.log.Debug("the scheduler will be asked again for runs of other workers", zap.Error(err))
	}
}

// learn records the reads of a successful run, and its result if that may be cached, for others.
func (a *action) learn(ctx context.Context, cacheable bool) {
	a.ahead.Learn(ctx)
	if !cacheable {
		return
	}
	if err := a.former.Keep(ctx, a.digest, workerName(a.p.id), a.times.entered[stageUpload]); err != nil {
		a.log.Debug("run will not be reused", zap.Error(err))
	}
}
