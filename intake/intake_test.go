package intake

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const check = healthpb.Health_Check_FullMethodName

// A service answers when it is let.
type service struct {
	healthpb.UnimplementedHealthServer
	release chan struct{}
	linger  chan struct{}       // nil: calls that are ended do not
	called  func(caller string) // called with each caller; may be nil
	expired atomic.Int64        // calls that this server ended
}

func (s *service) Check(ctx context.Context, r *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if s.called != nil {
		s.called(CallerOf(ctx))
	}
	if strings.HasPrefix(r.GetService(), "wait") {
		select {
		case <-s.release:
		case <-ctx.Done():
			if Expired(ctx) {
				s.expired.Add(1)
			}
			if s.linger != nil {
				<-s.linger
			}
			return nil, ctx.Err()
		}
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// serve serves with bounds until the test ends. The header "caller" names the caller of a call.
func serve(t *testing.T, o Options) (healthpb.HealthClient, *service, *Server) {
	t.Helper()
	made := &service{release: make(chan struct{})}
	conn, s := serveConn(t, o, made)
	return healthpb.NewHealthClient(conn), made, s
}

func serveConn(t *testing.T, o Options, made *service) (*grpc.ClientConn, *Server) {
	t.Helper()
	if o.Identify == nil {
		o.Identify = func(ctx context.Context, _ string) (context.Context, Caller, error) {
			return ctx, Caller{Name: strings.Join(metadata.ValueFromIncomingContext(ctx, "caller"), "")}, nil
		}
	}
	s := NewServer(o)
	healthpb.RegisterHealthServer(s, made)
	s.RegisterService(&upload, nil)
	s.RegisterService(&echo, nil)
	repb.RegisterContentAddressableStorageServer(s, repb.UnimplementedContentAddressableStorageServer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn, s
}

func as(t *testing.T, caller string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "caller", caller)
}

func request(name string, n int) *healthpb.HealthCheckRequest {
	return &healthpb.HealthCheckRequest{Service: name + strings.Repeat("x", n)}
}

// TestMessages sends messages around the limit of their method, plain and compressed, from callers
// with limits and from one without.
func TestMessages(t *testing.T) {
	const limit = 100_000
	client, _, _ := serve(t, Options{Bounds: BoundsFor(1 << 30), Methods: map[string]Limits{check: {Bytes: limit}}})
	for _, caller := range []string{"somebody", ""} {
		for n, want := range map[int]codes.Code{0: codes.OK, limit - 100: codes.OK, limit + 1: codes.ResourceExhausted} {
			for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
				_, err := client.Check(as(t, caller), request("", n), options...)
				if status.Code(err) != want {
					t.Errorf("%q with %d bytes, %d options: %v, want %v", caller, n, len(options), err, want)
				}
			}
		}
	}
}

// TestCallersAreApart has one caller take everything that he may. Others must not be affected, and
// he must have it again afterwards.
func TestCallersAreApart(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.CallsOfOne, b.Wait = 3, time.Minute
	client, service, server := serve(t, Options{Bounds: b})
	ended := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := client.Check(as(t, "greedy"), request("wait", 20_000))
			ended <- err
		}()
	}
	eventually(t, func() bool { return server.ledger.costs()[calls] == 3 })
	if _, err := client.Check(as(t, "greedy"), request("", 0)); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "greedy has 3 calls in flight") {
		t.Errorf("the fourth call: %v", err)
	}
	if _, err := client.Check(as(t, "modest"), request("", 50_000)); err != nil {
		t.Errorf("another caller: %v", err)
	}
	close(service.release)
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if _, err := client.Check(as(t, "greedy"), request("", 50_000)); err != nil {
		t.Errorf("after that: %v", err)
	}
	eventually(t, server.ledger.free)
}

// costs returns the cost of all calls.
func (l *ledger) costs() costs {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// free reports whether no caller has anything, and no caller is remembered.
func (l *ledger) free() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	queued := 0
	for _, q := range l.queue {
		queued += len(q)
	}
	return l.now == costs{} && len(l.accounts) == 0 && queued == 0
}

// TestNoRoom has requests that do not fit side by side: the second waits, and is refused when that
// takes too long.
func TestNoRoom(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.MessagesOfOne, b.Wait = 100_000, 2*time.Second
	client, service, server := serve(t, Options{Bounds: b})
	first := make(chan error, 1)
	go func() {
		_, err := client.Check(as(t, "somebody"), request("wait", 60_000))
		first <- err
	}()
	eventually(t, func() bool { return server.ledger.costs()[messages] > 0 })
	_, err := client.Check(as(t, "somebody"), request("", 60_000))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no memory") {
		t.Error(err)
	}
	if _, err := client.Check(as(t, "somebody"), request("", 1000)); err != nil {
		t.Errorf("a small request: %v", err)
	}
	close(service.release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := client.Check(as(t, "somebody"), request("", 60_000)); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}

// TestLate has a call whose request never arrives.
func TestLate(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Wait = 100 * time.Millisecond
	conn, _ := serveConn(t, Options{Bounds: b}, &service{})
	stream, err := conn.NewStream(as(t, "somebody"), &grpc.StreamDesc{ClientStreams: true}, check)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&healthpb.HealthCheckResponse{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want that it did not arrive in time", err)
	}
}

// TestLook refuses by headers, before anything is read.
func TestLook(t *testing.T) {
	client, _, _ := serve(t, Options{Bounds: BoundsFor(1 << 30), Look: func(ctx context.Context, _ string) (context.Context, error) {
		if len(metadata.ValueFromIncomingContext(ctx, "caller")) == 0 {
			return ctx, status.Error(codes.Unauthenticated, "who is it?")
		}
		return ctx, nil
	}})
	if _, err := client.Check(t.Context(), request("", 0)); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	if _, err := client.Check(as(t, "me"), request("", 0)); err != nil {
		t.Error(err)
	}
}

// TestGate has more connections than there may be, of one host and of several.
func TestGate(t *testing.T) {
	b := Bounds{Connections: 6, ConnectionsOfOne: 4, Guests: 3, GuestsOfOne: 2, Guest: time.Hour}
	g := NewGate(b, func(string) {})
	enter := func(host string) (*Conn, *fakeConn) {
		raw := &fakeConn{addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 1}}
		return g.enter(raw), raw
	}
	a1, raw1 := enter("10.0.0.1")
	a2, _ := enter("10.0.0.1")
	a2.Known()
	if _, _ = enter("10.0.0.1"); raw1.closed {
		t.Error("there was room for two who are not known")
	}
	a4, raw4 := enter("10.0.0.1")
	if !raw1.closed || a4 == nil {
		t.Errorf("the oldest that is not known does not make room: %v", a4)
	}
	_ = a1.Close() // as gRPC does then
	if c, _ := enter("10.0.0.2"); c == nil {
		t.Error("another host has no room")
	}
	for range 2 {
		c, _ := enter("10.0.0.1")
		if c == nil {
			t.Fatal("no room within the bounds")
		}
		c.Busy()
	}
	a2.Busy()
	a4.Busy()
	if c, _ := enter("10.0.0.1"); c != nil {
		t.Error("more connections of one host than there may be")
	}
	a4.Idle()
	a5, _ := enter("10.0.0.1")
	if a5 == nil || !raw4.closed {
		t.Error("the one that is not of use any more does not make room")
	}
	a5.Busy()
	if err := a2.Close(); err != nil {
		t.Error(err)
	}
	a2.Idle()
	if c, _ := enter("10.0.0.1"); c == nil {
		t.Error("the place of one that has gone is not free")
	}
}

// TestBounds looks whether what is left of a little memory does for something.
func TestBounds(t *testing.T) {
	for _, memory := range []int64{0, 32 << 20, 60 << 20, 200 << 20, 24 << 30, 1 << 50} {
		b := BoundsFor(memory)
		if b.MaxMessage(16<<20) < customary || b.UploadsOfOne < 64*uploadBytes || b.WindowsOfOne < 16*int64(b.Window) || b.GuestsOfOne < 1 || b.WaitingOfOne < 1 || b.Window < 64<<10 {
			t.Errorf("%d: %+v", memory, b)
		}
	}
}

type fakeConn struct {
	net.Conn
	addr   net.Addr
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return c.addr }
func (c *fakeConn) Close() error         { c.closed = true; return nil }

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never comes to that")
		}
	}
}

// TestHeaders: calls with long headers, and with many short ones, count with their memory.
func TestHeaders(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Calls, b.CallsOfOne, b.Streams = 10, 10, 100
	b.Wait = time.Minute
	client, service, s := serve(t, Options{Bounds: b})
	for name, more := range map[string][]string{
		"long": {"x", strings.Repeat("y", 60_000)},
		"many": slices.Repeat([]string{"xyz", "y"}, 600),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(as(t, "somebody"), more...))
			ended := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := client.Check(ctx, request("wait", 0))
					ended <- err
				}()
			}
			if err := <-ended; status.Code(err) != codes.ResourceExhausted {
				t.Errorf("the second: %v", err)
			}
			if n := s.ledger.costs()[calls]; n < 6 || n > 10 {
				t.Errorf("the first counts as %d", n)
			}
			cancel()
			<-ended
			eventually(t, s.ledger.free)
		})
	}
	close(service.release)
}

// TestUnknownMethods: the answer repeats nothing of the request, and comes before anything of the
// call is stored.
func TestUnknownMethods(t *testing.T) {
	looked := false
	conn, s := serveConn(t, Options{Bounds: BoundsFor(1 << 30), Look: func(ctx context.Context, _ string) (context.Context, error) {
		looked = true
		return ctx, nil
	}}, &service{})
	for _, method := range []string{"/%%%/x", "/grpc.health.v1.Health/%%%"} {
		err := conn.Invoke(as(t, "x"), method, request("", 0), request("", 0))
		if status.Code(err) != codes.Unimplemented || strings.Contains(err.Error(), "%") {
			t.Errorf("%s: %v", method, err)
		}
	}
	if looked {
		t.Error("somebody looked at the calls")
	}
	eventually(t, s.ledger.free)
}

// TestPending has calls whose caller is not known yet. They must be charged, with their headers,
// and further ones from the same address must be refused when there are too many.
func TestPending(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.CallsOfOne, b.Wait = 8, time.Minute
	known := make(chan struct{})
	client, _, s := serve(t, Options{
		Bounds:  b,
		Pending: func(context.Context, string) string { return "address" },
		Identify: func(ctx context.Context, _ string) (context.Context, Caller, error) {
			select {
			case <-known:
			case <-ctx.Done():
			}
			return ctx, Caller{Name: "user"}, ctx.Err()
		},
	})
	ended := make(chan error)
	long := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 20_000)) // as four
	for range 2 {
		go func() {
			_, err := client.Check(long, request("", 0))
			ended <- err
		}()
	}
	eventually(t, func() bool { return s.ledger.costs()[calls] == 8 })
	if _, err := client.Check(t.Context(), request("", 0)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	close(known)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	eventually(t, s.ledger.free)
}
