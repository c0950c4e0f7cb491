package live

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	livepb "github.com/forerunner-build/forerunner/proto/live"
)

const (
	// tellInterval is how often a worker reports how it is doing, if that has changed.
	tellInterval = 15 * time.Second
	// tellTimeout bounds each such call.
	tellTimeout = 10 * time.Second
)

// tell sends the worker's figures until ctx ends, or the scheduler does not support it.
func (l *Outputs) tell(ctx context.Context) {
	var told *livepb.Report
	for {
		pause := tellInterval
		if r := l.report(); !proto.Equal(r, told) {
			switch err := l.tellOnce(ctx, r); status.Code(err) {
			case codes.OK:
				told = r
			case codes.Unimplemented:
				return
			case codes.FailedPrecondition:
				pause = askInterval // the call of Serve is still under way
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (l *Outputs) tellOnce(ctx context.Context, r *livepb.Report) error {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	_, err := l.client.Tell(ctx, r)
	return err
}
