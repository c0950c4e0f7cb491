package operators

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

const (
	// killBatch is how many operations one event ends, while others wait.
	killBatch = 100
)

// operations shows queued and running operations to operators and owners, and kills them.
type operations struct {
	*engine.Engine
	// began is in page tokens: the next scheduler numbers operations anew.
	began string
}

func newOperations(e *engine.Engine) operations {
	return operations{e, strconv.FormatInt(time.Now().UnixNano(), 36)}
}

// token returns the page token for the operations after a number, and after decodes it.
func (s operations) token(number uint64) string {
	return s.began + "." + strconv.FormatUint(number, 36)
}

func (s operations) after(token string) (number uint64, err error) {
	if token == "" {
		return 0, nil
	}
	began, rest, _ := strings.Cut(token, ".")
	if number, err = strconv.ParseUint(rest, 36, 64); err != nil || began != s.began {
		return 0, status.Errorf(codes.InvalidArgument, "page token %q is not of this scheduler, as it was started last: begin with the first page", token)
	}
	return number, nil
}

// ListOperations implements admin.SchedulerServer. The caller sees his own.
func (s operations) ListOperations(
	ctx context.Context, req *admin.ListOperationsRequest,
) (*admin.ListOperationsResponse, error) {
	var p *pattern.Pattern
	if req.GetPattern() != nil {
		asked, err := ofOperations(req.GetPattern())
		if err != nil {
			return nil, err
		}
		p = &asked
	}
	after, err := s.after(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := pageSize(req.GetPageSize())
	own := operation.OwnedBy(ctx)
	var names []string
	resp := &admin.ListOperationsResponse{}
	s.EachOperation(p, after, func(number uint64, op *request.Operation) bool {
		if !own(op) {
			return true
		}
		if len(names) == size {
			resp.NextPageToken = s.token(after)
			return false
		}
		names, after = append(names, op.Name), number
		return true
	})
	statuses := make([]event.Status, 0, len(names))
	s.Look(func(v *core.View) {
		for _, name := range names {
			if st, ok := v.Operation(name); ok && !st.Done() {
				statuses = append(statuses, st)
			}
		}
	})
	for _, st := range statuses {
		resp.Operations = append(resp.Operations, operationMessage(st))
	}
	return resp, nil
}

func operationMessage(s event.Status) *admin.Operation {
	op := &admin.Operation{
		Name: s.Name, Action: s.Digest.String(), DigestFunction: s.Digest.Function().String(), InstanceName: s.Instance,
		Invocation: s.Request.ToolInvocation, Target: s.Request.Target,
		Mnemonic: s.Request.Mnemonic, Client: s.Client,
		Queued: timestamppb.New(s.Queued), Worker: s.Worker, Attempts: int32(s.Attempts), Done: s.Done(),
		SizeClass: s.Size.Class, SizeReason: s.Size.Reason,
		WorkerAway: s.Away,
	}
	if s.Worker != "" {
		op.Started = timestamppb.New(s.Started)
	}
	return op
}

// GetOperation implements admin.SchedulerServer. The reason of a wait can name operations of
// others: only callers that may observe get it.
func (s operations) GetOperation(ctx context.Context, req *admin.GetOperationRequest) (*admin.Operation, error) {
	observes, why := auth.Allowed(ctx, auth.Observe, ""), ""
	var st event.Status
	var ok bool
	s.Look(func(v *core.View) {
		if st, ok = operation.Visible(ctx, v, req.GetName(), auth.Observe); ok && observes {
			why = v.WaitsFor(req.GetName())
		}
	})
	if !ok {
		return nil, operation.ErrUnknown(req.GetName())
	}
	op := operationMessage(st)
	op.WaitsFor = why
	return op, nil
}

// KillOperations implements admin.SchedulerServer.
func (s operations) KillOperations(
	ctx context.Context, req *admin.KillOperationsRequest,
) (*admin.KillOperationsResponse, error) {
	p, err := ofOperations(req.GetPattern())
	if err != nil {
		return nil, err
	}
	reason := req.GetReason()
	if reason == "" {
		reason = "no reason was given"
	}
	var names []string
	s.EachOperation(&p, 0, func(_ uint64, op *request.Operation) bool {
		names = append(names, op.Name)
		return true
	})
	killed := 0
	for batch := range slices.Chunk(names, killBatch) {
		if err := ctx.Err(); err != nil {
			return nil, status.FromContextError(fmt.Errorf("%s killed: %w", plural.Of(killed, "operation"), err)).Err()
		}
		killed += s.Feed(core.Kill{Names: batch, Reason: reason}).Killed
	}
	return &admin.KillOperationsResponse{Killed: int64(killed)}, nil
}
