package learning

import (
	"context"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/operation"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// Admin shows operators the records of size classes.
type Admin struct {
	Requests *operation.Requests
	Learning *Learning
}

// GetSizes implements admin.SchedulerServer.
func (s Admin) GetSizes(
	ctx context.Context, req *admin.GetSizesRequest,
) (*admin.GetSizesResponse, error) {
	if s.Learning.options.Sizes == nil {
		return nil, status.Error(codes.FailedPrecondition, "this scheduler does not learn size classes")
	}
	fn, err := digest.FunctionFromProto(req.GetDigestFunction())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	op := &request.Operation{
		Instance: req.GetInstanceName(),
		Request:  request.Metadata{Mnemonic: req.GetMnemonic(), Configuration: req.GetConfiguration()},
	}
	var reduced digest.Digest
	if req.GetReducedActionDigest() == nil {
		if op.Digest, err = digest.FromProto(fn, req.GetActionDigest()); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "action_digest: %v", err)
		}
		storage := s.Requests.StorageOf(op)
		if err := s.Requests.Load(ctx, storage, op); err != nil {
			return nil, err
		}
		s.Learning.learnProgram(ctx, storage, op)
		reduced = digest.OfReduced(fn, op.Action)
	} else {
		if reduced, err = digest.FromProto(fn, req.GetReducedActionDigest()); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "reduced_action_digest: %v", err)
		}
		op.Digest, op.Action = reduced, &repb.Action{Timeout: durationpb.New(s.Requests.Config().ExecutionTimeout)}
	}
	selector := s.Learning.options.Sizes.Analyze(ctx, similar(op, reduced))
	sizes, choice := selector.Assess(conditions(s.Learning.classes(op, req.GetReducedActionDigest() != nil)))
	resp := &admin.GetSizesResponse{
		ReducedActionDigest: reduced.Proto(), SizeClass: choice.Class, Timeout: known(choice.Timeout), Reason: choice.Reason,
	}
	if resp.Reason == "" {
		resp.Reason = "no worker can run it now"
	}
	if failed := selector.LastFailure(); !failed.IsZero() {
		resp.LastFailure = timestamppb.New(failed)
	}
	for _, a := range sizes {
		resp.Sizes = append(resp.Sizes, sizeStats(a))
	}
	return resp, nil
}

func sizeStats(a sizeclass.Assessment) *admin.SizeStats {
	return &admin.SizeStats{
		SizeClass: a.Size, Succeeded: int32(a.Succeeded), TimedOut: int32(a.TimedOut), Failed: int32(a.Failed),
		Median: known(a.Median), Expected: known(a.Expected), Acceptable: known(a.Acceptable), Timeout: known(a.Timeout),
		Wait: known(a.Wait), Probability: a.Probability, Score: a.Score, RuledOut: a.RuledOut, Runs: a.Runs,
	}
}

// known returns nil for 0.
func known(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
