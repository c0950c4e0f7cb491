package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	castree "github.com/forerunner-build/forerunner/cas/tree"
)

// A failure is an error that knows the gRPC code its action ends with.
type failure struct {
	code codes.Code
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Errorf is fmt.Errorf for an action that ends with code.
func Errorf(code codes.Code, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

// Status maps errors to the gRPC status for the client. The status decides whether the client
// uploads again (missing inputs), retries (an error of the farm) or gives up (its own error).
func Status(ctx context.Context, err error) *status.Status {
	if ctx.Err() != nil {
		return status.New(codes.Canceled, "action was cancelled")
	}
	if missing := (*cas.MissingError)(nil); errors.As(err, &missing) {
		return missingStatus(err, missing.Digests)
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return status.New(f.code, err.Error())
	}
	switch {
	case errors.Is(err, castree.ErrInvalid), errors.Is(err, digest.ErrInvalid):
		return status.New(codes.InvalidArgument, err.Error())
	case errors.Is(err, cas.ErrCorrupt):
		return status.New(codes.DataLoss, err.Error())
	case errors.Is(err, cas.ErrNotFound), errors.As(err, new(*cas.NeverFitsError)):
		return status.New(codes.FailedPrecondition, err.Error())
	case errors.Is(err, cas.ErrNoSpace), errors.Is(err, castree.ErrTooLarge):
		return status.New(codes.ResourceExhausted, err.Error())
	case errors.Is(err, cas.ErrUnwritable):
		return status.New(codes.Unavailable, err.Error())
	}
	if s, ok := status.FromError(err); ok {
		return s
	}
	return status.New(codes.Internal, err.Error())
}

// missingStatus tells the client which blobs to upload before a retry (REv2, Execution.Execute:
// PreconditionFailure of type MISSING).
func missingStatus(err error, missing []digest.Digest) *status.Status {
	detail := &errdetails.PreconditionFailure{}
	for _, d := range missing {
		detail.Violations = append(detail.Violations, &errdetails.PreconditionFailure_Violation{
			Type:    "MISSING",
			Subject: d.BlobName(),
		})
	}
	s := status.New(codes.FailedPrecondition, err.Error())
	if detailed, err := s.WithDetails(detail); err == nil {
		return detailed
	}
	return s
}

// IsUnreadable reports whether err means that an input could not be read, rather than that a path
// is invalid. An input root without memory left (package budget) answers ENOMEM.
func IsUnreadable(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENOTCONN) || errors.Is(err, syscall.ENOMEM)
}
