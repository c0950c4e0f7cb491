package scheduler

import (
	"context"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/scheduler/core"
)

// maxMissing bounds the blobs that a client is told of at a time.
const maxMissing = 10_000

// checkInputs fails unless the instance name of op has all inputs of its action, where that is not left to workers. The
// error is a gRPC status: FAILED_PRECONDITION with what is missing, so that the client uploads it.
func (s *Server) checkInputs(ctx context.Context, op *core.Operation, action *repb.Action) error {
	if s.options.MissingInputs == nil {
		return nil
	}
	missing, err := s.options.MissingInputs(ctx, op.Instance, op.Digest.Function(), action)
	if err != nil || len(missing) == 0 {
		return err
	}
	st := status.Newf(codes.FailedPrecondition, "the storage lacks %d inputs of action %s, the first is %s", len(missing), op.Digest, missing[0])
	told := &errdetails.PreconditionFailure{}
	for _, d := range missing[:min(len(missing), maxMissing)] {
		told.Violations = append(told.Violations, &errdetails.PreconditionFailure_Violation{Type: "MISSING", Subject: d.BlobName()})
	}
	detailed, err := st.WithDetails(told)
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
