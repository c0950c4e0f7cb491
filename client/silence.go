package client

import (
	"context"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// askAfter is how long a stream may be silent before the client makes another request to the
	// server: a waiting or running action produces no messages. askTimeout is for the answer.
	askAfter, askTimeout = 20 * time.Second, 15 * time.Second
)

// errHangs is the error of a stream whose server hangs.
var errHangs = status.Error(codes.Unavailable, "the scheduler keeps its connections, and answers nothing")

// An attention notices a server that hangs. Its connections stay, as its kernel answers for it, and
// gRPC's pings would be too many for servers that allow one in five minutes; so it is asked for its
// capabilities, where any answer will do.
type attention struct {
	sync.WaitGroup
	heard chan struct{}
}

// attend calls cancel with errHangs when nothing has arrived and the server does not answer, until
// ctx ends.
func (a *attention) attend(ctx context.Context, w *watch, cancel context.CancelCauseFunc) {
	a.heard = make(chan struct{}, 1)
	a.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-a.heard:
			case <-time.After(askAfter):
				if w.answers(ctx, a.heard) {
					continue
				}
				cancel(errHangs)
				return
			}
		}
	})
}

// hear records that a message has arrived.
func (a *attention) hear() {
	select {
	case a.heard <- struct{}{}:
	default:
	}
}

// answers asks the server, and reports whether it answers or the stream does.
func (w *watch) answers(ctx context.Context, heard <-chan struct{}) bool {
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := w.able.GetCapabilities(limited, &repb.GetCapabilitiesRequest{InstanceName: w.req.Instance})
	return status.Code(err) != codes.DeadlineExceeded || limited.Err() == nil || ctx.Err() != nil || len(heard) > 0
}
