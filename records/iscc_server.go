package records

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/proto/iscc"
	"github.com/forerunner-build/forerunner/proto/names"
)

// RegisterISCC serves names.StatisticsBucket of s as Buildbarn's InitialSizeClassCache. The service
// needs no closing. The caller closes s after g has stopped.
//
// Values are encoded PreviousExecutionStats messages. Unknown fields are kept and returned. If a
// record is not such a message, the error is NOT_FOUND.
func RegisterISCC(g grpc.ServiceRegistrar, s Hints) {
	iscc.RegisterInitialSizeClassCacheServer(g, &isccService{store: s})
}

type isccService struct {
	iscc.UnimplementedInitialSizeClassCacheServer
	store Hints
}

// GetPreviousExecutionStats implements iscc.InitialSizeClassCacheServer.
func (s *isccService) GetPreviousExecutionStats(
	ctx context.Context, r *iscc.GetPreviousExecutionStatsRequest,
) (*iscc.PreviousExecutionStats, error) {
	k, err := serviceKey(names.StatisticsBucket, r)
	if err != nil {
		return nil, err
	}
	stats := &iscc.PreviousExecutionStats{}
	if err := getMessage(ctx, s.store, k, stats); err != nil {
		return nil, err
	}
	return stats, nil
}

// UpdatePreviousExecutionStats implements iscc.InitialSizeClassCacheServer.
func (s *isccService) UpdatePreviousExecutionStats(
	ctx context.Context, r *iscc.UpdatePreviousExecutionStatsRequest,
) (*emptypb.Empty, error) {
	k, err := serviceKey(names.StatisticsBucket, r)
	if err != nil {
		return nil, err
	}
	stats := r.GetPreviousExecutionStats()
	if stats == nil {
		return nil, status.Error(codes.InvalidArgument, "previous_execution_stats is not set")
	}
	if err := putMessage(ctx, s.store, k, "previous_execution_stats", stats); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}
