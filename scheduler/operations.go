package scheduler

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/connection"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

// deadlineSlack is how long before a call's deadline its end counts as the deadline: both sides use
// their own clocks.
const deadlineSlack = time.Second

// operations handles the operations of clients, with the streams that follow them. Errors of its
// methods are gRPC statuses.
type operations struct {
	*engine.Engine
	// pages is ServerOptions.Pages.
	pages string
	// patience is ServerOptions.FirstUpdate.
	patience time.Duration
}

// operationStream is the stream of Execute and WaitExecution.
type operationStream interface {
	Send(*longrunningpb.Operation) error
	Context() context.Context
}

// submit has an operation queued, which the caller follows from then on.
func (o *operations) submit(op *request.Operation) (box *engine.Mailbox, err error) {
	if !o.Accept(func(t engine.Turn) (out event.Out) {
		out = t.Feed(event.Submit{Operation: op})
		if err = out.Err; err == nil {
			box = engine.NewPatientMailbox(o.patience)
			t.Follow(op.Name, box)
		}
		return out
	}) {
		return nil, engine.ErrStopped()
	}
	if errors.Is(err, event.ErrQueueFull) || errors.Is(err, event.ErrClientFull) {
		return nil, operation.RetryLater(err)
	} else if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return box, nil
}

// attach makes the caller wait for an operation of his, and follow it.
func (o *operations) attach(ctx context.Context, name string) (box *engine.Mailbox, err error) {
	box = engine.NewMailbox()
	if !o.Accept(func(t engine.Turn) event.Out {
		if _, known := operation.Visible(ctx, t.View(), name, auth.Observe); !known {
			err = operation.ErrUnknown(name)
		} else if crowded := t.Crowded(name); crowded != nil {
			err = operation.RetryLater(crowded)
		}
		if err != nil {
			return t.Feed(event.Tick{})
		}
		out := t.Feed(event.Attach{Name: name})
		if out.Err != nil {
			err = operation.ErrUnknown(name)
			return out
		}
		st, _ := t.View().Operation(name)
		t.Follow(name, box)
		box.Put(&st)
		return out
	}) {
		return nil, engine.ErrStopped()
	}
	return box, err
}

// watch has the caller follow an operation without waiting for it, until done is called.
func (o *operations) watch(ctx context.Context, name string) (st event.Status, box *engine.Mailbox, done func(), err error) {
	box = engine.NewMailbox()
	o.Under(func(t engine.Turn) {
		var known bool
		if st, known = operation.Visible(ctx, t.View(), name, auth.Observe); !known || st.Done() {
			err = status.Errorf(codes.NotFound, "operation %q is unknown or has ended: its output is in its result", name)
			return
		}
		if crowded := t.Crowded(name); crowded != nil {
			err = operation.RetryLater(crowded)
			return
		}
		if t.Follow(name, box); o.IsStopped() {
			box.Close()
		}
	})
	if err != nil {
		return st, nil, nil, err
	}
	return st, box, func() { o.Under(func(t engine.Turn) { t.Unfollow(name, box) }) }, nil
}

// follow sends the states of an operation until it is done. The caller has
// submitted or attached to it, which follow undoes.
func (o *operations) follow(stream operationStream, name string, box *engine.Mailbox, wanted inlining) error {
	defer func() {
		box.Leave()
		cancelled := isCancelled(stream.Context())
		o.Step(func(t engine.Turn) event.Out {
			t.Unfollow(name, box)
			return t.Feed(event.Detach{Name: name, Now: cancelled})
		})
	}()
	for {
		select {
		case <-box.Full():
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
		if done, err := o.sendNext(stream, name, box, wanted); done || err != nil {
			return err
		}
	}
}

// sendNext sends the state in box, if any, and reports whether it is the last one. It is separate
// from follow, whose stack lives as long as a client waits.
func (o *operations) sendNext(stream operationStream, name string, box *engine.Mailbox, wanted inlining) (done bool, err error) {
	st, open := box.Take()
	switch {
	case st == nil && open:
		return false, nil
	case st == nil:
		return false, engine.ErrStopped()
	}
	if st.Stage == repb.ExecutionStage_UNKNOWN {
		return false, operation.ErrUnknown(name)
	}
	m, err := operation.Longrunning(o.withPage(wanted.of(stream.Context(), st)))
	if err != nil {
		return false, err
	}
	return st.Done(), stream.Send(m)
}

// isCancelled reports whether a client has cancelled its call, while its connection lived: it does
// not want to come back. If the call's deadline passed, its connection broke, or the server ended
// it because of a limit, the client may call again.
func isCancelled(ctx context.Context) bool {
	c := connection.Of(ctx)
	if ctx.Err() == nil || c == nil || c.Ended() && !intake.Cancelled(ctx) || intake.Expired(ctx) {
		return false
	}
	deadline, limited := ctx.Deadline()
	return !limited || time.Until(deadline) > deadlineSlack
}

// tellPage puts the address of an operation's page into the header of the answer, if the client wants
// it.
func (o *operations) tellPage(ctx context.Context, op *request.Operation) {
	if o.pages != "" && len(intake.Header(ctx, names.PageHeader)) > 0 {
		_ = grpc.SetHeader(ctx, metadata.Pairs(names.PageHeader, o.pages+op.Name)) // can fail only if no one would get it
	}
}

// withPage returns st, with the link to its page in the message of a failure, and in that of its
// status.
func (o *operations) withPage(st *event.Status) *event.Status {
	failed := st.Response.GetStatus().GetCode() != 0 || st.Response.GetResult().GetExitCode() != 0
	if !st.Done() || !failed || o.pages == "" {
		return st
	}
	linked, r := *st, st.Response // other clients have them too
	link := "See " + o.pages + st.Name + o.build(st)
	linked.Response = &repb.ExecuteResponse{
		Result: r.GetResult(), CachedResult: r.GetCachedResult(), Status: r.GetStatus(), ServerLogs: r.GetServerLogs(),
		Message: strings.TrimSpace(r.GetMessage() + "\n" + link),
	}
	if s := r.GetStatus(); s.GetCode() != 0 { // of these Bazel prints only the status
		linked.Response.Status = &spb.Status{Code: s.GetCode(), Details: s.GetDetails(), Message: strings.TrimSpace(s.GetMessage() + "\n" + link)}
	}
	return &linked
}

// build is the page of the operation's invocation.
func (o *operations) build(st *event.Status) string {
	if st.Request.ToolInvocation == "" {
		return ""
	}
	return "\nThe build: " + o.pages + "builds/" + url.PathEscape(st.Request.ToolInvocation)
}

// operationsService is the useful part of longrunning Operations: GetOperation and CancelOperation.
// The rest is UNIMPLEMENTED.
type operationsService struct {
	*engine.Engine
	longrunningpb.UnimplementedOperationsServer
}

// GetOperation returns the present state of an operation.
func (s operationsService) GetOperation(
	ctx context.Context, req *longrunningpb.GetOperationRequest,
) (*longrunningpb.Operation, error) {
	var st event.Status
	var ok bool
	s.Look(func(v *core.View) { st, ok = operation.Visible(ctx, v, req.GetName(), auth.Observe) })
	if !ok {
		return nil, operation.ErrUnknown(req.GetName())
	}
	return operation.Longrunning(&st)
}

// CancelOperation ends an operation for all its waiters. Other operations that share its run are
// not affected.
func (s operationsService) CancelOperation(
	ctx context.Context, req *longrunningpb.CancelOperationRequest,
) (*emptypb.Empty, error) {
	var known bool
	s.Step(func(t engine.Turn) event.Out {
		if _, known = operation.Visible(ctx, t.View(), req.GetName(), auth.Administer); !known {
			return t.Feed(event.Tick{})
		}
		return t.Feed(event.Cancel{Name: req.GetName()})
	})
	if !known {
		return nil, operation.ErrUnknown(req.GetName())
	}
	return &emptypb.Empty{}, nil
}
