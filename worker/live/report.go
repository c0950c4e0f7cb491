package live

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/pause"
	livepb "github.com/forerunner-build/forerunner/proto/live"
)

const (
	// tellInterval is how often a worker reports how it is doing, if that has changed.
	tellInterval = 15 * time.Second
	// tellTimeout bounds each such call.
	tellTimeout = 10 * time.Second
)

// Serves waits until the scheduler has answered, and reports whether it serves live output.
// Schedulers of Forerunner do. It is also false if ctx ends before. Without a client it is true at
// once.
func (l *Outputs) Serves(ctx context.Context) bool {
	if l.client == nil {
		return true
	}
	for rest := minBackoff; ; rest = min(2*rest, maxBackoff) {
		// The scheduler's answer, such as FailedPrecondition before Run has called, does not matter
		// here.
		err := l.tellOnce(ctx, l.report(), grpc.WaitForReady(true))
		switch status.Code(err) {
		case codes.Unimplemented:
			l.log.Info("the scheduler is not Forerunner's: the worker calls it as one identity for each slot")
			return false
		case codes.DeadlineExceeded:
			rest = minBackoff // it has waited long enough
		case codes.Unavailable, codes.Canceled:
		default:
			return true
		}
		if pause.For(ctx, rest) != nil {
			return false
		}
	}
}

// tell sends the worker's figures until ctx ends, or the scheduler does not support it.
func (l *Outputs) tell(ctx context.Context) {
	var told *livepb.Report
	for {
		rest := tellInterval
		if r := l.report(); !proto.Equal(r, told) {
			switch err := l.tellOnce(ctx, r); status.Code(err) {
			case codes.OK:
				told = r
			case codes.Unimplemented:
				return
			case codes.FailedPrecondition:
				rest = askInterval // the call of Serve has not ended yet
			}
		}
		if pause.For(ctx, rest) != nil {
			return
		}
	}
}

func (l *Outputs) tellOnce(ctx context.Context, r *livepb.Report, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	_, err := l.client.Tell(ctx, r, options...)
	return err
}
