package intake

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/forerunner-build/forerunner/intake/inprocess"
)

// TestHeader: a handler gets the headers of a call over a connection, and of one within the process.
func TestHeader(t *testing.T) {
	var one, two, none []string
	conn, s := serveConn(t, Options{
		Bounds: BoundsFor(1 << 30),
		Identify: func(ctx context.Context, _ string) (context.Context, Caller, error) {
			one, two, none = Header(ctx, "one"), Header(ctx, "two"), Header(ctx, "none")
			return ctx, Caller{Name: "somebody"}, nil
		},
	}, &service{})
	for name, by := range map[string]grpc.ClientConnInterface{"over a connection": conn, "within": s.Dial(peer.Peer{}, inprocess.ConnOptions{})} {
		one, two, none = nil, nil, []string{"not asked"}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "One", "a", "two", "b", "two", "c")
		if _, err := healthpb.NewHealthClient(by).Check(ctx, request("", 0)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(one, []string{"a"}) || !slices.Equal(two, []string{"b", "c"}) || none != nil {
			t.Errorf("%s: one %q, two %q, none %q", name, one, two, none)
		}
	}
}
