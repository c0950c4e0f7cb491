package intake

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// large is a service whose answer has a megabyte.
var large = grpc.ServiceDesc{
	ServiceName: "test.Large",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Get",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return request("", 1<<20), decode(&healthpb.HealthCheckRequest{})
		},
	}},
}

// TestAnswers has clients that do not read their answers: what these take is counted until they are sent, others wait for it, and
// the connection is closed that takes none for too long.
func TestAnswers(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Wait, b.Stall = time.Minute, 2*time.Second
	b.Buffers, b.BuffersOfOne = 3<<20+3<<10, 3<<20+3<<10 // three answers
	s := NewServer(Options{Bounds: b, Identify: identifyAll}, grpc.Creds(throughGate{insecure.NewCredentials()}))
	s.RegisterService(&large, nil)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(NewGate(b, s.Refused()).Listen(listener)) }()
	defer func() {
		s.Stop()
		<-served
	}()
	client := func() *grpc.ClientConn {
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	hung, honest := client(), client()
	for range 5 {
		stream, err := hung.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Large/Get")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(request("", 0)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool {
		now := s.ledger.costs()
		return now[calls] == 5 && now[waiting] == 2 && now[buffers] >= 3<<20
	})
	var answer healthpb.HealthCheckRequest
	if err := honest.Invoke(t.Context(), "/test.Large/Get", request("", 0), &answer); err != nil || len(answer.Service) != 1<<20 {
		t.Errorf("%d bytes, %v", len(answer.Service), err)
	}
	eventually(t, s.ledger.free)
}

// throughGate tells a server through which Conn a call came.
type throughGate struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (g throughGate) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	return conn, arrival{info, raw.(*Conn)}, err
}

type arrival struct {
	credentials.AuthInfo
	conn *Conn
}

// Through implements Arrival.
func (a arrival) Through() *Conn { return a.conn }
