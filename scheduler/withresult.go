package scheduler

import (
	"context"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// keepResult writes the result in a report to the action cache, if the worker asks for it: before
// clients learn that the action has ended. An error is only logged: the action has its result.
func (s queueService) keepResult(ctx context.Context, req *remoteworker.SynchronizeRequest, r *event.Report) {
	wanted := intake.Header(ctx, names.ResultHeader)
	if s.putResult == nil || len(wanted) != 1 || r.Doing != event.Completed || !r.Named {
		return
	}
	action := req.GetCurrentState().GetExecuting().GetActionDigest()
	d, err := digestBy(wanted[0], action)
	if err == nil {
		err = s.putResult(ctx, r.Instance, d, r.Response.GetResult())
	}
	if err != nil {
		s.log.Warn("result was not written to the action cache",
			append(workerFields(r.Worker), zap.String("action", action.GetHash()), zap.Error(err))...)
	}
}

// digestBy returns the digest by a function with that number.
func digestBy(function string, m *repb.Digest) (d digest.Digest, err error) {
	n, err := strconv.ParseInt(function, 10, 32)
	if err != nil {
		return d, err
	}
	fn, err := digest.FunctionFromProto(repb.DigestFunction_Value(n))
	if err != nil {
		return d, err
	}
	return digest.FromProto(fn, m)
}
