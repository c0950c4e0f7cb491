package dial

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

// TestStrangersKeepTheConnection has a quiet stream, and then none, to a server that knows nothing
// of our pings. It must not close the connection, as gRPC's servers do with clients that ping too
// often.
func TestStrangersKeepTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := bufconn.Listen(1 << 16)
		server := grpc.NewServer()
		healthpb.RegisterHealthServer(server, health.NewServer())
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		var connections atomic.Int32
		client := &Client{Connect: func(ctx context.Context, _ string) (net.Conn, error) {
			connections.Add(1)
			return listener.DialContext(ctx)
		}}
		conn, err := client.Dial("stranger:1")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Minute)
		cancel()
		time.Sleep(20 * time.Minute)
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Error(err)
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("the server has closed %d connections", n-1)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
