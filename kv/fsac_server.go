package kv

import (
	"context"
	"errors"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/fsac"
)

// RegisterFSAC serves ProfileBucket of s as Buildbarn's FileSystemAccessCache. It needs no closing; s
// stays the caller's, to be closed after g has stopped. Values are encoded FileSystemAccessProfile
// messages. Fields of them that the schema does not have are kept and given back. A record that is no such
// message is NOT_FOUND.
//
// A filter is stored as it comes, malformed or not: that is for the reader to judge.
func RegisterFSAC(g grpc.ServiceRegistrar, s Store) {
	fsac.RegisterFileSystemAccessCacheServer(g, &fsacService{store: s})
}

type fsacService struct {
	fsac.UnimplementedFileSystemAccessCacheServer
	store Store
}

// GetFileSystemAccessProfile implements fsac.FileSystemAccessCacheServer.
func (s *fsacService) GetFileSystemAccessProfile(
	ctx context.Context, r *fsac.GetFileSystemAccessProfileRequest,
) (*fsac.FileSystemAccessProfile, error) {
	k, err := profileKey(r.GetInstanceName(), r.GetDigestFunction(), r.GetReducedActionDigest())
	if err != nil {
		return nil, err
	}
	value, err := s.store.Get(ctx, k)
	if err != nil {
		return nil, serviceStatus(err)
	}
	profile := &fsac.FileSystemAccessProfile{}
	if err := proto.Unmarshal(value, profile); err != nil {
		return nil, serviceStatus(about("read", k, ErrNotFound))
	}
	return profile, nil
}

// UpdateFileSystemAccessProfile implements fsac.FileSystemAccessCacheServer.
func (s *fsacService) UpdateFileSystemAccessProfile(
	ctx context.Context, r *fsac.UpdateFileSystemAccessProfileRequest,
) (*emptypb.Empty, error) {
	k, err := profileKey(r.GetInstanceName(), r.GetDigestFunction(), r.GetReducedActionDigest())
	if err != nil {
		return nil, err
	}
	profile := r.GetFileSystemAccessProfile()
	if profile == nil {
		return nil, status.Error(codes.InvalidArgument, "file_system_access_profile is not set")
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(profile)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "file_system_access_profile: %v", err)
	}
	if len(value) > MaxValueBytes {
		return nil, status.Errorf(codes.InvalidArgument,
			"file_system_access_profile has %d bytes, at most %d are allowed", len(value), MaxValueBytes)
	}
	if err := s.store.Put(ctx, k, value); err != nil {
		return nil, serviceStatus(err)
	}
	return &emptypb.Empty{}, nil
}

// profileKey returns the key that a request is about; its errors are statuses.
func profileKey(instance string, fn repb.DigestFunction_Value, d *repb.Digest) (Key, error) {
	function, err := digest.FunctionFromProto(fn)
	if err != nil {
		return Key{}, status.Errorf(codes.InvalidArgument, "digest_function: %v", err)
	}
	reduced, err := digest.FromProto(function, d)
	if err != nil {
		return Key{}, status.Errorf(codes.InvalidArgument, "reduced_action_digest: %v", err)
	}
	k := Key{Bucket: ProfileBucket, Instance: instance, Digest: reduced}
	if err := k.check(); err != nil {
		return Key{}, status.Error(codes.InvalidArgument, err.Error())
	}
	return k, nil
}

// serviceStatus makes a gRPC status of an error of a Store. Nothing but hints is at stake, so that a
// store that fails is as good as one that is away.
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
