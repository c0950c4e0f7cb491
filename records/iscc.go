package records

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/proto/iscc"
	"github.com/forerunner-build/forerunner/proto/names"
)

// ISCCOptions are the options of an ISCC. Zero values mean the defaults.
type ISCCOptions struct {
	// Timeout limits each call; default 1 s.
	Timeout time.Duration
}

func (o *ISCCOptions) validate() {
	if o.Timeout <= 0 {
		o.Timeout = defaultServiceTimeout
	}
}

// An ISCC stores Hints in an InitialSizeClassCache of Buildbarn or of RegisterISCC. The service
// stores PreviousExecutionStats messages by reduced action digest. Other buckets than
// names.StatisticsBucket are always empty; Put to them returns ErrInvalid. Put also returns
// ErrInvalid for a value that is not such a message. Get returns an encoding of the message, which
// may differ from the encoding that was put.
//
// Errors of the service other than NOT_FOUND keep their status (status.FromError). An ISCC does not
// retry.
type ISCC struct {
	serviceStore[*iscc.PreviousExecutionStats]
}

var _ Hints = (*ISCC)(nil)

// NewISCC returns an ISCC that uses a connection. The caller closes the connection.
func NewISCC(conn grpc.ClientConnInterface, o ISCCOptions) *ISCC {
	o.validate()
	client := iscc.NewInitialSizeClassCacheClient(conn)
	return &ISCC{serviceStore[*iscc.PreviousExecutionStats]{
		buckets: []string{names.StatisticsBucket}, timeout: o.Timeout,
		empty: func() *iscc.PreviousExecutionStats { return &iscc.PreviousExecutionStats{} },
		get: func(ctx context.Context, k Key) (*iscc.PreviousExecutionStats, error) {
			return client.GetPreviousExecutionStats(ctx, &iscc.GetPreviousExecutionStatsRequest{
				InstanceName:        k.Instance,
				DigestFunction:      k.Digest.Function().Proto(),
				ReducedActionDigest: k.Digest.Proto(),
			}, grpc.MaxCallRecvMsgSize(maxServiceMessage))
		},
		put: func(ctx context.Context, k Key, m *iscc.PreviousExecutionStats) error {
			_, err := client.UpdatePreviousExecutionStats(ctx, &iscc.UpdatePreviousExecutionStatsRequest{
				InstanceName:           k.Instance,
				DigestFunction:         k.Digest.Function().Proto(),
				ReducedActionDigest:    k.Digest.Proto(),
				PreviousExecutionStats: m,
			})
			return err
		},
	}}
}
