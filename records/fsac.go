package records

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/names"
)

// defaultServiceTimeout is the default timeout of a call to one of Buildbarn's services.
const defaultServiceTimeout = time.Second

// FSACOptions are the options of an FSAC. Zero values mean the defaults.
type FSACOptions struct {
	// Buckets are the buckets that the service stores; default only names.ProfileBucket. The
	// service does not know buckets, so the same digest in two buckets is the same record. The
	// digests in different buckets must come from different messages.
	Buckets []string
	// Timeout limits each call; default 1 s.
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

// An FSAC stores Hints in a FileSystemAccessCache of Buildbarn or of RegisterFSAC. The service
// stores FileSystemAccessProfile messages by reduced action digest. Other buckets than
// FSACOptions.Buckets are always empty; Put to them returns ErrInvalid. Put also returns ErrInvalid
// for a value that is not such a message. Unknown fields are sent, but the service may drop them.
// Get returns an encoding of the message, which may differ from the encoding that was put. It may
// exceed MaxValueBytes if another client put it; the connection limits it.
//
// Errors of the service other than NOT_FOUND keep their status (status.FromError). An FSAC does not
// retry: a late profile is useless.
type FSAC struct {
	serviceStore[*fsac.FileSystemAccessProfile]
}

var _ Hints = (*FSAC)(nil)

// NewFSAC returns an FSAC that uses a connection. The caller closes the connection.
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
