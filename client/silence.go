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
	// askAfter is how long a stream may be silent before the client sends another request to the
	// server. A queued or running action produces no messages. askTimeout limits the wait for the
	// answer.
	askAfter, askTimeout = 20 * time.Second, 15 * time.Second
)

// errHangs is the error of a stream whose server hangs.
var errHangs = status.Error(codes.Unavailable, "the scheduler keeps its connections open but does not answer")

// An attention detects a server that hangs. The server's kernel keeps the connections open. gRPC's
// pings would be too frequent for servers that allow one in five minutes. So the client requests
// the server's capabilities; any answer shows that the server is alive.
type attention struct {
	sync.WaitGroup
	answered chan struct{}
}

// attend runs until ctx ends. It calls cancel with errHangs if no message arrives and the server
// does not answer.
func (a *attention) attend(ctx context.Context, w *watch, cancel context.CancelCauseFunc) {
	a.answered = make(chan struct{}, 1)
	a.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-a.answered:
			case <-time.After(askAfter):
				if w.answers(ctx, a.answered) {
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
	case a.answered <- struct{}{}:
	default:
	}
}

// answers sends a request, and reports whether the server answers it or a message arrives on the
// stream. The server's gRPC library may end the request at the deadline, a moment before limited
// ends; that is no answer.
func (w *watch) answers(ctx context.Context, answered <-chan struct{}) bool {
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := w.able.GetCapabilities(limited, &repb.GetCapabilitiesRequest{InstanceName: w.req.Instance})
	deadline, _ := limited.Deadline()
	early := time.Now().Before(deadline)
	return status.Code(err) != codes.DeadlineExceeded || early || ctx.Err() != nil || len(answered) > 0
}
