package intake

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// large is a service whose answers have a megabyte, or 4 KiB: then ten are more than gRPC puts into
// one buffer, and fewer than fill a window.
var large = grpc.ServiceDesc{
	ServiceName: "test.Large",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{answering("Get", 1<<20), answering("GetLess", 4<<10)},
}

// answering returns a method whose answers have that many bytes.
func answering(name string, bytes int) grpc.MethodDesc {
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return request("", bytes), decode(&healthpb.HealthCheckRequest{})
		},
	}
}

// TestSmallAnswers: calls count until gRPC has sent their answers, however small their share of the
// memory is.
func TestSmallAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, s := serveRude(t, Options{Bounds: BoundsFor(200_000_000)})
		r := dial()
		const calls = 10
		for range calls {
			must(t, errors.Join(r.headers(callOf("/test.Large/GetLess")...), r.WriteData(r.stream-1, true, make([]byte, 5)), r.flush()))
		}
		synctest.Wait()
		if n := s.ledger.accounts["somebody"]; n == nil || len(n.lines) != 1 {
			t.Error("nobody is charged for answers that are not sent")
		}
		for ended := 0; ended < calls; {
			f, err := r.ReadFrame()
			must(t, err)
			if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
				ended++
			}
		}
		synctest.Wait()
		if !s.ledger.free() {
			t.Error("answers that are sent are charged to somebody")
		}
	})
}

// TestAnswers has clients that do not read their answers. The memory of answers must count until
// they are sent, and other calls must wait for it. A connection that accepts nothing for too long
// must be closed, or earlier if others wait.
func TestAnswers(t *testing.T) {
	for name, b := range map[string]Bounds{
		"for too long": {Wait: time.Minute, Stall: 2 * time.Second},
		"others wait":  {Wait: 20 * time.Second, Stall: time.Hour},
	} {
		t.Run(name, func(t *testing.T) { testAnswers(t, b.Wait, b.Stall) })
	}
}

// TestUnreadRefusals has a client that stops reading while the server writes, and continues to
// call. The server must close its connection because of the unread refusals.
func TestUnreadRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := BoundsFor(1 << 30)
		b.CallsOfOne, b.Stall = 1, time.Hour
		metrics := prometheus.NewRegistry()
		dial, _ := serveRude(t, Options{Bounds: b, Metrics: metrics})
		r := dial()
		must(t, errors.Join(r.WritePing(false, [8]byte{}), r.flush()))
		synctest.Wait() // the server writes its answer until the client reads
		call := append(callOf("/test.Large/Get"), "x", strings.Repeat("x", 8<<10))
		var err error
		for calls := 0; err == nil; calls++ {
			if calls == mostBegun {
				t.Fatal("the connection is still there")
			}
			err = errors.Join(r.headers(call...), r.WriteData(r.stream-1, true, make([]byte, 5)), r.flush())
			synctest.Wait()
		}
		if n := refused(t, metrics); n["unread"] != 1 || n["calls_of_one"] == 0 {
			t.Errorf("refused: %v", n)
		}
	})
}

// refused returns how many calls and connections a server has refused, by reason.
func refused(t *testing.T, metrics prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := metrics.Gather()
	must(t, err)
	counts := map[string]int{}
	for _, f := range families {
		if f.GetName() == "forerunner_grpc_refused_total" {
			for _, m := range f.Metric {
				counts[m.Label[0].GetValue()] = int(m.Counter.GetValue())
			}
		}
	}
	return counts
}

func testAnswers(t *testing.T, wait, stall time.Duration) {
	b := BoundsFor(1 << 30)
	b.Wait, b.Stall = wait, stall
	b.Buffers, b.BuffersOfOne = 3<<20+3<<10, 3<<20+3<<10 // three answers
	addr, s := serveThroughGate(t, b, func(s *Server) { s.RegisterService(&large, nil) })
	client := func() *grpc.ClientConn {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
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

// serveThroughGate has a server with a Gate until the test ends.
func serveThroughGate(t *testing.T, b Bounds, register func(*Server)) (addr string, s *Server) {
	t.Helper()
	s = NewServer(Options{Bounds: b, Identify: identifyAll, Credentials: throughGate{insecure.NewCredentials()}})
	register(s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(NewGate(b, s.Refused()).Listen(listener)) }()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return listener.Addr().String(), s
}

// throughGate tells a server the Conn of a call.
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
