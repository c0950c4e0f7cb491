package worker

import (
	"context"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/inputs"
	"github.com/forerunner-build/forerunner/worker/usage"
	"github.com/forerunner-build/forerunner/worker/vouching"
)

// maxRuns is how often a command is run, at most, because what it read was wrong.
const maxRuns = 3

// runVouched takes the action through its stages, until nothing that its command read was
// damaged: whatever came out of such a run, an error too, nobody is told. What was damaged
// has been set aside by then, and comes from elsewhere the next time.
func (a *action) runVouched(ctx context.Context) (*repb.ExecuteResponse, error) {
	if response, err := a.begin(ctx); response != nil || err != nil {
		return response, err
	}
	for {
		a.runs++
		a.vouch = vouching.New(a.p.w.opts.Store)
		response, err := a.run(ctx)
		damage := a.vouchFor(ctx, err)
		switch {
		case damage == nil:
			return response, err
		case !vouching.IsDamage(damage):
			return nil, errors.Join(err, damage)
		}
		a.p.w.metrics.damagedRuns.Inc()
		if a.runs == maxRuns {
			return nil, fault.Errorf(codes.Unavailable, "what the command read was damaged on this worker in each of %d runs: %w",
				maxRuns, damage)
		}
		a.log.Warn("what the command read was damaged; it is run again and nobody is told of this run",
			zap.Int("run", a.runs), zap.Strings("blobs", vouching.DamagedBlobs(damage)), zap.String("folder", a.p.w.opts.Store.Dir()),
			zap.Error(damage))
		if err := a.again(ctx); err != nil {
			return nil, err
		}
	}
}

// vouchFor waits until all that this run used is known to be right. err is how it ended; it may be
// that itself which says that something was not.
func (a *action) vouchFor(ctx context.Context, err error) error {
	if vouching.IsDamage(err) {
		return err
	}
	if errors.Is(err, vfs.ErrInputChanged) {
		return nil // it fails for that, and a run that did it would do it again
	}
	var damage error
	if a.root != nil {
		damage = a.root.Vouch(ctx) // first: it tells what was used
	}
	return errors.Join(damage, a.vouch.Wait(ctx))
}

// again makes the action what it was when its input root was to be made. Its place may be one
// to report from: it gives that up for a slot, for who has one may wait for the place.
func (a *action) again(ctx context.Context) error {
	a.endRace()
	a.leaveRun()
	a.ran, a.vacated, a.watched = usage.Command{}, false, false
	a.read, a.stalled, a.size = vfs.Stats{}, 0, inputs.Size{}
	a.ahead.Forget()
	a.former.Forget()
	a.p.w.excesses.remove(a.digest)
	a.times.again()
	a.task.enter(fetchingInputs())
	return a.task.place.Again(ctx)
}

// leaveRun takes away what one run of the command had. It may be called again.
func (a *action) leaveRun() {
	if a.root != nil {
		if err := a.root.Close(); err != nil {
			a.log.Error("input root was not released", zap.Error(err))
		}
		a.root = nil
	}
	if a.work != nil {
		a.leaveWorkFolder()
		a.work = nil
	}
	if a.vouch != nil {
		a.vouch.Close()
		a.vouch = nil
	}
}
