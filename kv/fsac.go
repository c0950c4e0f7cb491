package kv

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/fsac"
)

// ProfileBucket is the bucket of FileSystemAccessProfile messages by reduced action digest.
const ProfileBucket = "profile"

// FSACOptions are what may be chosen about an FSAC. Zero values mean the defaults.
type FSACOptions struct {
	// Buckets are those that are kept in the service; default ProfileBucket alone. As it knows of no
	// buckets, the same digest in two of them is the same record: their digests have to be those
	// of different messages.
	Buckets []string
	// Timeout bounds each call; default 1 s.
	Timeout time.Duration
}

func (o *FSACOptions) validate() {
	if len(o.Buckets) == 0 {
		o.Buckets = []string{ProfileBucket}
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
}

// An FSAC is a Store in a FileSystemAccessCache of Buildbarn or of RegisterFSAC, which keeps
// FileSystemAccessProfile messages by reduced action digest. In a bucket that is not among
// FSACOptions.Buckets nothing is ever found, and Put returns ErrInvalid, as it does for a value that is
// no such message. Fields that the schema does not have are sent along; the service may drop them.
// Get returns an encoding of the message, which need not be the one that was put.
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
	if !slices.Contains(s.options.Buckets, k.Bucket) {
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
	if !slices.Contains(s.options.Buckets, k.Bucket) {
		return about("put", k, fmt.Errorf("%w: the bucket is not kept in the service", ErrInvalid))
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
