package worker

import (
	"context"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/vouching"
)

// maxRuns is the limit of runs of a command because of damaged inputs or an unknown kill.
const maxRuns = 3

// runVouched takes the action through its stages, until its command read no damaged inputs, and
// once more if an unknown process has killed it: the outcome of such a run, even an error, is
// discarded. The damaged files have been set aside by then, and the next run fetches them again.
func (a *action) runVouched(ctx context.Context) (*repb.ExecuteResponse, error) {
	if response, err := a.begin(ctx); response != nil || err != nil {
		return response, err
	}
	defer func() { a.last.shown.Decide(true) }()
	killed := false
	for {
		response, err := a.last.do(ctx)
		damage := a.last.vouchFor(ctx, err)
		switch {
		case damage == nil && !killed && a.last.wasKilled(err) && ctx.Err() == nil:
			killed = true
			a.log.Warn("an unknown process killed the command or its launcher; the command runs once more",
				zap.Int("run", a.last.number), zap.String("signal", a.last.used.Signal), zap.Error(err),
				zap.String("to_look_at", "dmesg, and what ends processes on this machine"))
			if err := a.again(ctx); err != nil {
				return nil, err
			}
			continue
		case damage == nil:
			return response, err
		case !vouching.IsDamage(damage):
			return nil, errors.Join(err, damage)
		}
		a.w.metrics.damagedRuns.Inc()
		if a.last.number == maxRuns {
			return nil, fault.Errorf(codes.Unavailable, "the command read damaged bytes on this worker in each of %d runs: %w",
				maxRuns, damage)
		}
		a.log.Warn("the command read damaged bytes; this run is discarded and repeated",
			zap.Int("run", a.last.number), zap.Strings("blobs", vouching.DamagedBlobs(damage)), zap.String("folder", a.w.opts.Store.Dir()),
			zap.Error(damage))
		if err := a.again(ctx); err != nil {
			return nil, err
		}
	}
}

// wasKilled reports whether the run, which ended with err, was killed neither by the worker nor by
// the kernel for lack of memory or time. The command itself may be the cause, which a second run
// shows.
func (r *run) wasKilled(err error) bool {
	return errors.Is(err, runner.ErrLauncherDied) && r.used.Cause != runner.TimedOut ||
		err == nil && r.used.Cause == runner.Signaled && r.used.Signal == "SIGKILL"
}

// again resets the action to the state before its input root. If its permit is one to report, it
// exchanges that for a slot, because the holder of a slot may wait for the permit.
func (a *action) again(ctx context.Context) error {
	a.endRace()
	a.last.shown.Decide(false)
	a.last.leave()
	a.last = a.newRun()
	a.ahead.Forget()
	a.former.Forget()
	a.w.refusals.remove(a.digest)
	a.times.again()
	a.task.enter(fetchingInputs())
	return a.task.permit.Again(ctx)
}
