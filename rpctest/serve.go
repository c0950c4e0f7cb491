package rpctest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Serve serves g in memory until the end of the test, and returns a connection to it, which the
// caller may close earlier.
func Serve(t testing.TB, g *grpc.Server) *grpc.ClientConn {
	t.Helper()
	pipe := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- g.Serve(pipe) }()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}
