package records

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/names"
)

// defaultServiceTimeout is the default limit of a call of Buildbarn's services.
const defaultServiceTimeout = time.Second

// FSACOptions are the options of an FSAC. Zero values mean the defaults.
type FSACOptions struct {
	// Buckets are the buckets that the service keeps; default only names.ProfileBucket. Because the
	// service has no buckets, the same digest in two of them is the same record: their digests must
	// be those of different messages.
	Buckets []string
	// Timeout bounds each call; default 1 s.
	Timeout time.Duration
}

func (o *FSACOptions) validate() {
	if len(o.Buckets) == 0 {
		o.Buckets = []string{names.ProfileBucket}
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultServiceTimeout
	}
}

// An FSAC keeps Hints in a FileSystemAccessCache of Buildbarn or of RegisterFSAC, which keeps
// FileSystemAccessProfile messages by reduced action digest. A bucket that is not among
// FSACOptions.Buckets is always empty, and Put to it returns ErrInvalid, as it does for a value
// that is no such message. Unknown fields are sent along; the service may drop them. Get returns an
// encoding of the message, which need not be the one that was put, and may be larger than
// MaxValueBytes if another client put it; the connection limits it.
//
// Errors of the service other than NOT_FOUND keep their status (status.FromError). An FSAC does not
// retry: a late profile is useless.
type FSAC struct {
	serviceStore[*fsac.FileSystemAccessProfile]
}

var _ Hints = (*FSAC)(nil)

// NewFSAC returns an FSAC over a connection, which the caller closes.
func NewFSAC(conn grpc.ClientConnInterface, o FSACOptions) *FSAC {
	o.validate()
	client := fsac.NewFileSystemAccessCacheClient(conn)
	return &FSAC{serviceStore[*fsac.FileSystemAccessProfile]{
		buckets: o.Buckets, timeout: o.Timeout,
		empty: func() *fsac.FileSystemAccessProfile { return &fsac.FileSystemAccessProfile{} },
		get: func(ctx context.Context, k Key) (*fsac.FileSystemAccessProfile, error) {
			return client.GetFileSystemAccessProfile(ctx, &fsac.GetFileSystemAccessProfileRequest{
				InstanceName:        k.Instance,
				DigestFunction:      k.Digest.Function().Proto(),
				ReducedActionDigest: k.Digest.Proto(),
			})
		},
		put: func(ctx context.Context, k Key, m *fsac.FileSystemAccessProfile) error {
			_, err := client.UpdateFileSystemAccessProfile(ctx, &fsac.UpdateFileSystemAccessProfileRequest{
				InstanceName:            k.Instance,
				DigestFunction:          k.Digest.Function().Proto(),
				ReducedActionDigest:     k.Digest.Proto(),
				FileSystemAccessProfile: m,
			})
			return err
		},
	}}
}
