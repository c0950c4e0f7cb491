package operation

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// queueFullRetry is when a client may try again after RESOURCE_EXHAUSTED.
const queueFullRetry = 10 * time.Second

// RetryLater returns a RESOURCE_EXHAUSTED error that asks the client to come back later.
func RetryLater(err error) error {
	st, detailErr := status.New(codes.ResourceExhausted, err.Error()).WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(queueFullRetry)})
	if detailErr != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return st.Err()
}

// missing returns FAILED_PRECONDITION with the blob that the client should upload again (REv2,
// Execution.Execute).
func missing(what string, d digest.Digest) error {
	st := status.Newf(codes.FailedPrecondition, "%s %s is not in the storage", what, d)
	detailed, err := st.WithDetails(&errdetails.PreconditionFailure{
		Violations: []*errdetails.PreconditionFailure_Violation{{Type: "MISSING", Subject: d.BlobName()}},
	})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}
