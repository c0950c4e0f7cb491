package intake

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/forerunner-build/forerunner/intake/inprocess"
)

// BenchmarkCall compares a small unary call of a bounded server, over a socket and within the
// process, with gRPC's own, eight at a time.
func BenchmarkCall(b *testing.B) {
	options := Options{Bounds: BoundsFor(8 << 30), Identify: identifyAll}
	bounded, plain := NewServer(options), grpc.NewServer()
	for name, s := range map[string]struct {
		grpc.ServiceRegistrar
		*grpc.Server
	}{"bounded": {bounded, bounded.Server}, "plain": {plain, plain}} {
		healthpb.RegisterHealthServer(s.ServiceRegistrar, &service{})
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		go func() { _ = s.Server.Serve(listener) }()
		defer s.Server.Stop()
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		b.Run(name, func(b *testing.B) { benchmarkCall(b, conn) })
	}
	b.Run("within", func(b *testing.B) { benchmarkCall(b, bounded.Dial(peer.Peer{}, inprocess.ConnOptions{})) })
}

func benchmarkCall(b *testing.B, conn grpc.ClientConnInterface) {
	client := healthpb.NewHealthClient(conn)
	b.SetParallelism(4)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.Check(b.Context(), &healthpb.HealthCheckRequest{}); err != nil {
				b.Error(err)
			}
		}
	})
}

func identifyAll(ctx context.Context, _ string) (context.Context, Caller, error) {
	return ctx, Caller{Name: "somebody"}, nil
}
