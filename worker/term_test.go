package worker

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// termClient answers with a header.
type termClient struct{ term string }

func (c *termClient) Synchronize(
	_ context.Context, _ *remoteworker.SynchronizeRequest, options ...grpc.CallOption,
) (*remoteworker.SynchronizeResponse, error) {
	for _, o := range options {
		if h, ok := o.(grpc.HeaderCallOption); ok && c.term != "" {
			*h.HeaderAddr = metadata.Pairs(names.TermHeader, c.term)
		}
	}
	return &remoteworker.SynchronizeResponse{}, nil
}

// TestTermsThatAreOver has two schedulers answer in turn. One of them does not know that its term
// is over.
func TestTermsThatAreOver(t *testing.T) {
	from := &termClient{}
	c := &leaseClient{OperationQueueClient: from}
	for _, step := range []struct {
		term string
		want codes.Code
	}{
		{"", codes.OK},
		{"7", codes.OK},
		{"7", codes.OK},
		{"9", codes.OK},
		{"7", codes.Unavailable},
		{"9", codes.OK},
		{"", codes.OK}, // of a scheduler that takes no turns
		{"other", codes.OK},
		{"8", codes.Unavailable},
		{"10", codes.OK},
	} {
		from.term = step.term
		if _, err := c.Synchronize(t.Context(), nil); status.Code(err) != step.want {
			t.Errorf("term %q: %v, want %v", step.term, err, step.want)
		}
	}
}
