package scheduler

import (
	"context"
	"errors"
	"strings"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

// deadlineSlack is how long before a call's time is over its end counts as that: both sides look at their clocks.
const deadlineSlack = time.Second

// operations are those of clients, with the streams that follow them. Errors of its methods are gRPC statuses.
type operations struct {
	*engine
	// pages is ServerOptions.Pages.
	pages string
}

// operationStream is what Execute and WaitExecution send to.
type operationStream interface {
	Send(*longrunningpb.Operation) error
	Context() context.Context
}

// submit has an operation queued, which the caller follows from then on.
func (o *operations) submit(op *core.Operation) (box *mailbox, err error) {
	box = newMailbox()
	if !o.accept(func(now time.Time) (out core.Out) {
		out = o.feedLocked(now, core.Submit{Operation: op})
		if err = out.Err; err == nil {
			o.streams.add(op.Name, box)
		}
		return out
	}) {
		return nil, errStopped()
	}
	if errors.Is(err, core.ErrQueueFull) || errors.Is(err, core.ErrClientFull) {
		return nil, retryLater(codes.ResourceExhausted, err, queueFullRetry)
	} else if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return box, nil
}

// attach has the caller wait for an operation of his, and follow it.
func (o *operations) attach(ctx context.Context, name string) (box *mailbox, err error) {
	box = newMailbox()
	if !o.accept(func(now time.Time) core.Out {
		if _, known := visible(ctx, o.state.View(), name, auth.Observe); !known {
			err = errUnknownOperation(name)
		} else {
			err = o.streams.crowded(name)
		}
		if err != nil {
			return o.feedLocked(now, core.Tick{})
		}
		out := o.feedLocked(now, core.Attach{Name: name})
		if out.Err != nil {
			err = errUnknownOperation(name)
			return out
		}
		st, _ := o.state.View().Operation(name)
		o.streams.add(name, box)
		box.put(&st)
		return out
	}) {
		return nil, errStopped()
	}
	return box, err
}

// watch has the caller follow an operation without waiting for it, until done is called.
func (o *operations) watch(ctx context.Context, name string) (st core.Status, box *mailbox, done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st, known := visible(ctx, o.state.View(), name, auth.Observe)
	if !known || st.Done() {
		return st, nil, nil, status.Errorf(codes.NotFound, "operation %q is unknown or has ended: its output is in its result", name)
	}
	if err := o.streams.crowded(name); err != nil {
		return st, nil, nil, err
	}
	box = newMailbox()
	o.streams.add(name, box)
	if o.isStopped() {
		box.close()
	}
	return st, box, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.streams.remove(name, box)
	}, nil
}

// follow sends the states of an operation until it is done. The caller has
// submitted or attached to it, which follow undoes.
func (o *operations) follow(stream operationStream, name string, box *mailbox) error {
	defer func() {
		cancelled := isCancelled(stream.Context())
		o.step(func(now time.Time) core.Out {
			o.streams.remove(name, box)
			return o.feedLocked(now, core.Detach{Name: name, Now: cancelled})
		})
	}()
	for {
		select {
		case <-box.full:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
		st, open := box.take()
		switch {
		case st == nil && open:
			continue
		case st == nil:
			return errStopped()
		}
		if st.Stage == repb.ExecutionStage_UNKNOWN {
			return errUnknownOperation(name)
		}
		m, err := longrunning(o.withPage(st))
		if err != nil {
			return err
		}
		if err := stream.Send(m); err != nil || st.Done() {
			return err
		}
	}
}

// isCancelled reports whether a client has cancelled its call, while its connection lives: it does not want to come back.
// A call whose time is over, or whose connection broke, it may well make again.
func isCancelled(ctx context.Context) bool {
	if c := connectionOf(ctx); ctx.Err() == nil || c == nil || c.ended.Load() {
		return false
	}
	deadline, limited := ctx.Deadline()
	return !limited || time.Until(deadline) > deadlineSlack
}

// withPage returns st, with the link to its page in the message of a failure.
func (o *operations) withPage(st *core.Status) *core.Status {
	failed := st.Response.GetStatus().GetCode() != 0 || st.Response.GetResult().GetExitCode() != 0
	if !st.Done() || !failed || o.pages == "" {
		return st
	}
	linked, r := *st, st.Response // others have them too
	linked.Response = &repb.ExecuteResponse{
		Result: r.GetResult(), CachedResult: r.GetCachedResult(), Status: r.GetStatus(), ServerLogs: r.GetServerLogs(),
		Message: strings.TrimSpace(r.GetMessage() + "\nSee " + o.pages + st.Name),
	}
	return &linked
}

func errUnknownOperation(name string) error {
	return status.Errorf(codes.NotFound, "operation %q is unknown, or ended too long ago", name)
}

// visible returns the state of an operation that belongs to who calls (auth.Owns), or that another
// right lets him see. To all others it is as one that there is not, so that nobody learns of
// an operation by its name.
func visible(ctx context.Context, v *core.View, name string, or auth.Right) (st core.Status, known bool) {
	st, known = v.Operation(name)
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

// operationsService is the part of longrunning Operations that is of use:
// GetOperation and CancelOperation. The rest is UNIMPLEMENTED.
type operationsService struct {
	*engine
	longrunningpb.UnimplementedOperationsServer
}

// GetOperation returns an operation's present state.
func (s operationsService) GetOperation(
	ctx context.Context, req *longrunningpb.GetOperationRequest,
) (*longrunningpb.Operation, error) {
	var st core.Status
	var ok bool
	s.look(func(v *core.View) { st, ok = visible(ctx, v, req.GetName(), auth.Observe) })
	if !ok {
		return nil, errUnknownOperation(req.GetName())
	}
	return longrunning(&st)
}

// CancelOperation ends an operation for all who wait for it. Others that share
// its run do not notice.
func (s operationsService) CancelOperation(
	ctx context.Context, req *longrunningpb.CancelOperationRequest,
) (*emptypb.Empty, error) {
	var known bool
	s.step(func(now time.Time) core.Out {
		if _, known = visible(ctx, s.state.View(), req.GetName(), auth.Administer); !known {
			return s.feedLocked(now, core.Tick{})
		}
		return s.feedLocked(now, core.Cancel{Name: req.GetName()})
	})
	if !known {
		return nil, errUnknownOperation(req.GetName())
	}
	return &emptypb.Empty{}, nil
}
