package records

import (
	"context"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A serviceRequest has the common fields of the requests to Buildbarn's services.
type serviceRequest interface {
	GetInstanceName() string
	GetDigestFunction() repb.DigestFunction_Value
	GetReducedActionDigest() *repb.Digest
}

// serviceKey returns the key of a request. Its errors are gRPC statuses.
func serviceKey(bucket string, r serviceRequest) (Key, error) {
	function, err := digest.FunctionFromProto(r.GetDigestFunction())
	if err != nil {
		return Key{}, status.Errorf(codes.InvalidArgument, "digest_function: %v", err)
	}
	reduced, err := digest.FromProto(function, r.GetReducedActionDigest())
	if err != nil {
		return Key{}, status.Errorf(codes.InvalidArgument, "reduced_action_digest: %v", err)
	}
	k := Key{Bucket: bucket, Instance: r.GetInstanceName(), Digest: reduced}
	if err := check(k); err != nil {
		return Key{}, status.Error(codes.InvalidArgument, err.Error())
	}
	return k, nil
}

// getMessage reads a record into m. Its errors are gRPC statuses.
func getMessage(ctx context.Context, s Hints, k Key, m proto.Message) error {
	value, err := s.Get(ctx, k)
	if err != nil {
		return serviceStatus(err)
	}
	if err := proto.Unmarshal(value, m); err != nil {
		return serviceStatus(about("read", k, ErrNotFound))
	}
	return nil
}

// putMessage stores m, which came in the field of that name. Its errors are gRPC statuses.
func putMessage(ctx context.Context, s Hints, k Key, field string, m proto.Message) error {
	value, err := encode(m)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "%s: %v", field, err)
	}
	if len(value) > MaxValueBytes {
		return status.Errorf(codes.InvalidArgument,
			"%s has %d bytes; the maximum is %d", field, len(value), MaxValueBytes)
	}
	if err := s.Put(ctx, k, value); err != nil {
		return serviceStatus(err)
	}
	return nil
}

// serviceStatus converts an error of Hints to a gRPC status. Every failure of the store is
// UNAVAILABLE, because hints may be missing.
func serviceStatus(err error) error {
	code := codes.Unavailable
	switch {
	case errors.Is(err, ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, ErrInvalid):
		code = codes.InvalidArgument
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}
