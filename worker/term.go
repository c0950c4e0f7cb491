package worker

import (
	"context"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// A leaseClient refuses answers of a scheduler that lost its lease and has not noticed yet: those
// of an earlier term than the latest that it saw. It accepts answers without a term.
type leaseClient struct {
	remoteworker.OperationQueueClient
	latest atomic.Uint64
}

// Synchronize implements remoteworker.OperationQueueClient.
func (c *leaseClient) Synchronize(
	ctx context.Context, req *remoteworker.SynchronizeRequest, options ...grpc.CallOption,
) (*remoteworker.SynchronizeResponse, error) {
	var header metadata.MD
	response, err := c.OperationQueueClient.Synchronize(ctx, req, append(options, grpc.Header(&header))...)
	if err != nil {
		return nil, err
	}
	values := header.Get(names.TermHeader)
	if len(values) == 0 {
		return response, nil
	}
	term, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil {
		return response, nil // of another scheduler
	}
	for {
		latest := c.latest.Load()
		switch {
		case term < latest:
			return nil, status.Errorf(codes.Unavailable,
				"the answer is from term %d of the lease, and term %d has begun", term, latest)
		case term == latest || c.latest.CompareAndSwap(latest, term):
			return response, nil
		}
	}
}
