package scheduler

import (
	"context"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// operationsService is the part of longrunning Operations that is of use:
// GetOperation and CancelOperation. The rest is UNIMPLEMENTED.
type operationsService struct {
	*Server
	longrunningpb.UnimplementedOperationsServer
}

// Operations returns what Register serves of longrunning Operations, for callers in this process.
func (s *Server) Operations() longrunningpb.OperationsServer { return operationsService{Server: s} }

// GetOperation returns an operation's present state.
func (s operationsService) GetOperation(
	_ context.Context, req *longrunningpb.GetOperationRequest,
) (*longrunningpb.Operation, error) {
	s.mu.Lock()
	st, ok := s.state.Operation(req.GetName())
	s.mu.Unlock()
	if !ok {
		return nil, errUnknownOperation(req.GetName())
	}
	return longrunning(&st)
}

// CancelOperation ends an operation for all who wait for it. Others that share
// its run do not notice.
func (s operationsService) CancelOperation(
	_ context.Context, req *longrunningpb.CancelOperationRequest,
) (*emptypb.Empty, error) {
	var known bool
	s.step(func(now time.Time) (out Out) {
		out, known = s.state.Cancel(now, req.GetName())
		return out
	})
	if !known {
		return nil, errUnknownOperation(req.GetName())
	}
	return &emptypb.Empty{}, nil
}
