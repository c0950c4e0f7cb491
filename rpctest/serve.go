package rpctest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
)

// fineBuffers has gRPC take buffers of little more than a message. Its own pool takes one of 1 MiB for
// each message above 32 KiB and clears it, and the race detector looks at each byte of that.
var fineBuffers = sync.OnceFunc(func() {
	pool, err := mem.NewBinaryTieredBufferPool(8, 10, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22)
	if err != nil {
		panic(err)
	}
	experimental.SetDefaultBufferPool(pool)
})

// Serve serves g in memory until the end of the test, and returns a connection to it, which the
// caller may close earlier.
func Serve(t testing.TB, g *grpc.Server) *grpc.ClientConn {
	t.Helper()
	fineBuffers()
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
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // it may not have begun
			t.Error(err)
		}
	})
	return conn
}
