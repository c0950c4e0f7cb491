package records

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/names"
)

// RegisterFSAC serves names.ProfileBucket of s as Buildbarn's FileSystemAccessCache. The service
// needs no closing. The caller closes s after g has stopped.
//
// Values are encoded FileSystemAccessProfile messages. Unknown fields are kept and returned. If a
// record is not such a message, the error is NOT_FOUND. A filter is stored unchecked, because
// readers check it.
func RegisterFSAC(g grpc.ServiceRegistrar, s Hints) {
	fsac.RegisterFileSystemAccessCacheServer(g, &fsacService{store: s})
}

type fsacService struct {
	fsac.UnimplementedFileSystemAccessCacheServer
	store Hints
}

// GetFileSystemAccessProfile implements fsac.FileSystemAccessCacheServer.
func (s *fsacService) GetFileSystemAccessProfile(
	ctx context.Context, r *fsac.GetFileSystemAccessProfileRequest,
) (*fsac.FileSystemAccessProfile, error) {
	k, err := serviceKey(names.ProfileBucket, r)
	if err != nil {
		return nil, err
	}
	profile := &fsac.FileSystemAccessProfile{}
	if err := getMessage(ctx, s.store, k, profile); err != nil {
		return nil, err
	}
	return profile, nil
}

// UpdateFileSystemAccessProfile implements fsac.FileSystemAccessCacheServer.
func (s *fsacService) UpdateFileSystemAccessProfile(
	ctx context.Context, r *fsac.UpdateFileSystemAccessProfileRequest,
) (*emptypb.Empty, error) {
	k, err := serviceKey(names.ProfileBucket, r)
	if err != nil {
		return nil, err
	}
	profile := r.GetFileSystemAccessProfile()
	if profile == nil {
		return nil, status.Error(codes.InvalidArgument, "file_system_access_profile is not set")
	}
	if err := putMessage(ctx, s.store, k, "file_system_access_profile", profile); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}
