package operation

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// ErrUnknown is the gRPC status for operations that do not exist, or that the caller may not see.
func ErrUnknown(name string) error {
	return status.Errorf(codes.NotFound, "operation %q is unknown, or ended too long ago", name)
}

// Visible returns the state of an operation if the caller owns it (auth.Owns) or may see it by
// another right. For others the operation does not exist, so that nobody learns of an operation by
// guessing its name.
func Visible(ctx context.Context, v *core.View, name string, or auth.Right) (st event.Status, known bool) {
	st, known = v.Operation(name)
	if !known || !auth.Owns(ctx, ownerOf(st.Operation), or) {
		return event.Status{}, false
	}
	return st, true
}

func ownerOf(op *request.Operation) auth.Owner {
	return auth.Owner{User: op.User, Instance: op.Instance}
}

// OwnedBy returns a function that reports whether the caller may see an operation. One goroutine
// may use it.
func OwnedBy(ctx context.Context) func(*request.Operation) bool {
	known := map[auth.Owner]bool{}
	return func(op *request.Operation) bool {
		owner := ownerOf(op)
		own, looked := known[owner]
		if !looked {
			own = auth.Owns(ctx, owner, auth.Observe)
			known[owner] = own
		}
		return own
	}
}
