package kv

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/fsac"
)

// ProfileBucket is the bucket of the FileSystemAccessProfile messages that FSAC is about, unless
// FSACOptions have another.
const ProfileBucket = "profile"

// FSACOptions are what may be chosen about both sides of the service. Zero values mean the defaults.
type FSACOptions struct {
	// Bucket is the only bucket that the service has; default ProfileBucket.
	Bucket string
	// Timeout bounds each call of a client; default 1 s.
	Timeout time.Duration
}

func (o *FSACOptions) validate() {
	if o.Bucket == "" {
		o.Bucket = ProfileBucket
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
}

// An FSAC is a Store in a FileSystemAccessCache of Buildbarn or of RegisterFSAC, which keeps one bucket
// of FileSystemAccessProfile messages by reduced action digest. In another bucket nothing is ever
// found, and Put returns ErrInvalid, as it does for a value that is no such message. Get returns an
// encoding of the message that may differ from what was put, where that was not the shortest.
//
// Errors of the service other than NOT_FOUND keep their status (status.FromError). An FSAC tries
// nothing again: a profile that comes late is of no use.
type FSAC struct {
	client  fsac.FileSystemAccessCacheClient
	options FSACOptions
}

var _ Store = (*FSAC)(nil)

// NewFSAC returns an FSAC over a connection, which stays the caller's.
func NewFSAC(conn grpc.ClientConnInterface, o FSACOptions) *FSAC {
	o.validate()
	return &FSAC{client: fsac.NewFileSystemAccessCacheClient(conn), options: o}
}

// maxFSACMessage is what a call may carry: a value, a digest, and an instance name.
const maxFSACMessage = MaxValueBytes + maxInstanceBytes + 1024

// Get implements Store.
func (s *FSAC) Get(ctx context.Context, k Key) ([]byte, error) {
	if err := usable(ctx, k); err != nil {
		return nil, about("get", k, err)
	}
	if k.Bucket != s.options.Bucket {
		return nil, about("get", k, ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	profile, err := s.client.GetFileSystemAccessProfile(ctx, &fsac.GetFileSystemAccessProfileRequest{
		InstanceName:        k.Instance,
		DigestFunction:      k.Digest.Function().Proto(),
		ReducedActionDigest: k.Digest.Proto(),
	}, grpc.MaxCallRecvMsgSize(maxFSACMessage))
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, about("get", k, ErrNotFound)
	case err != nil:
		return nil, about("get", k, err)
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(profile)
	if err != nil {
		return nil, about("get", k, err)
	}
	return append([]byte{}, value...), nil
}

// Put implements Store.
func (s *FSAC) Put(ctx context.Context, k Key, value []byte) error {
	if err := usable(ctx, k); err != nil {
		return about("put", k, err)
	}
	if k.Bucket != s.options.Bucket {
		return about("put", k, fmt.Errorf("%w: the service has no bucket but %s", ErrInvalid, s.options.Bucket))
	}
	if err := k.checkValue(len(value), maxFSACMessage); err != nil {
		return about("put", k, err)
	}
	var profile fsac.FileSystemAccessProfile
	if err := proto.Unmarshal(value, &profile); err != nil {
		return about("put", k, fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.Timeout)
	defer cancel()
	_, err := s.client.UpdateFileSystemAccessProfile(ctx, &fsac.UpdateFileSystemAccessProfileRequest{
		InstanceName:            k.Instance,
		DigestFunction:          k.Digest.Function().Proto(),
		ReducedActionDigest:     k.Digest.Proto(),
		FileSystemAccessProfile: &profile,
	})
	return about("put", k, err)
}
