package scheduler

import (
	"context"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/scheduler/core"
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
	ctx context.Context, req *longrunningpb.GetOperationRequest,
) (*longrunningpb.Operation, error) {
	s.mu.Lock()
	st, ok := s.operationLocked(ctx, req.GetName(), auth.Observe)
	s.mu.Unlock()
	if !ok {
		return nil, errUnknownOperation(req.GetName())
	}
	return longrunning(&st)
}

// operationLocked returns the state of an operation that belongs to who calls (auth.Owns), or that another
// right lets him see. To all others it is as one that there is not, so that nobody learns of
// an operation by its name.
func (s *Server) operationLocked(ctx context.Context, name string, or auth.Right) (st core.Status, known bool) {
	st, known = s.state.View().Operation(name)
	if !known || !auth.Owns(ctx, ownerOf(st.Operation), or) {
		return core.Status{}, false
	}
	return st, true
}

func ownerOf(op *core.Operation) auth.Owner { return auth.Owner{User: op.User, Instance: op.Instance} }

// ownedBy returns a function that tells which operations the caller may see. It is for one goroutine.
func ownedBy(ctx context.Context) func(*core.Operation) bool {
	known := map[auth.Owner]bool{}
	return func(op *core.Operation) bool {
		owner := ownerOf(op)
		own, looked := known[owner]
		if !looked {
			own = auth.Owns(ctx, owner, auth.Observe)
			known[owner] = own
		}
		return own
	}
}

// CancelOperation ends an operation for all who wait for it. Others that share
// its run do not notice.
func (s operationsService) CancelOperation(
	ctx context.Context, req *longrunningpb.CancelOperationRequest,
) (*emptypb.Empty, error) {
	var known bool
	s.step(func(now time.Time) core.Out {
		if _, known = s.operationLocked(ctx, req.GetName(), auth.Administer); !known {
			return s.feedLocked(now, core.Tick{})
		}
		return s.feedLocked(now, core.Cancel{Name: req.GetName()})
	})
	if !known {
		return nil, errUnknownOperation(req.GetName())
	}
	return &emptypb.Empty{}, nil
}
