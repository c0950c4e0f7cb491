package intake

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestGuestsLeave: a connection that shows no identity in time ends, one that has shown one stays.
func TestGuestsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := BoundsFor(1 << 30)
		var refused atomic.Int32
		g := NewGate(b, func(string) { refused.Add(1) })
		guest, known := &fakeConn{addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}}, &fakeConn{addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2)}}
		g.enter(guest)
		g.enter(known).Known()
		time.Sleep(b.Guest - time.Second)
		synctest.Wait()
		if refused.Load() != 0 {
			t.Error("the guest has to go before its time")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if !guest.closed || known.closed || refused.Load() != 1 {
			t.Errorf("guest closed: %t, known: %t, refused: %d", guest.closed, known.closed, refused.Load())
		}
	})
}

// TestGuestsOfAll has guests of many hosts: together they are no more than the bound, and the
// oldest makes room.
func TestGuestsOfAll(t *testing.T) {
	b := Bounds{Connections: 100, ConnectionsOfOne: 50, Guests: 3, GuestsOfOne: 2, Guest: time.Hour}
	g := NewGate(b, func(string) {})
	var all []*fakeConn
	for i := range 8 {
		raw := &fakeConn{addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, byte(i))}}
		all = append(all, raw)
		c := g.enter(raw)
		if c == nil {
			t.Fatalf("guest %d is refused", i)
		}
		defer func() { _ = c.Close() }()
	}
	for i, raw := range all {
		if gone := i < len(all)-b.Guests; raw.closed != gone {
			t.Errorf("guest %d is closed: %t", i, raw.closed)
		}
	}
}

// TestSilentUploads: a stream of requests that brings nothing for too long ends, unless its method
// may be silent.
func TestSilentUploads(t *testing.T) {
	const method = "/test.Upload/Put"
	for _, stalls := range []bool{false, true} {
		b := BoundsFor(1 << 30)
		b.Stall = 100 * time.Millisecond
		conn, s := serveConn(t, Options{Bounds: b, Methods: map[string]Limits{method: {Stalls: stalls}}}, &service{})
		refused := make(chan string, 10)
		s.ledger.refused = func(reason string) { refused <- reason }
		stream := put(t, conn, "somebody")
		if err := stream.SendMsg(request("", 0)); err != nil {
			t.Fatal(err)
		}
		if stalls { // nothing ends it: the time after which it would have ended is over
			time.Sleep(3 * b.Stall)
			if err := fill(stream, 1); err != nil {
				t.Errorf("one that may be silent: %v", err)
			}
			continue
		}
		ended := make(chan error, 1)
		go func() { ended <- stream.RecvMsg(&healthpb.HealthCheckResponse{}) }()
		select {
		case err := <-ended:
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("silent: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a silent upload does not end")
		}
		if reason := <-refused; reason != "late" {
			t.Errorf("refused as %q", reason)
		}
	}
}

// cutConn loses everything written after that many bytes.
type cutConn struct {
	net.Conn
	left int // touched by the one goroutine that writes
}

func (c *cutConn) Write(p []byte) (int, error) {
	some := p[:min(len(p), c.left)]
	c.left -= len(some)
	if n, err := c.Conn.Write(some); err != nil {
		return n, err
	}
	return len(p), nil
}

// TestPartOfAMessage has a message begin to arrive, and never end: patience with it does.
func TestPartOfAMessage(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Wait = 100 * time.Millisecond
	conn, s := serveConn(t, Options{Bounds: b}, &service{})
	half, err := grpc.NewClient(conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			return &cutConn{raw, 20_000}, err // the first frame has 16 KiB
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	ctx, cancel := context.WithTimeout(as(t, "somebody"), time.Minute)
	defer cancel()
	if _, err := healthpb.NewHealthClient(half).Check(ctx, request("", 2*smallMessage)); !strings.Contains(status.Convert(err).Message(), "did not arrive in time") {
		t.Errorf("half a request: %v", err)
	}
	eventually(t, s.ledger.free)
}

// TestCompressedRequestsCost: a compressed request costs what it may come to before that is known.
func TestCompressedRequestsCost(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.MessagesOfOne, b.Wait = 150_000, 2*time.Second // for the first request, too: on a slow machine it takes some time to arrive
	client, service, s := serve(t, Options{Bounds: b, Methods: map[string]Limits{check: {Bytes: 100_000}}})
	first := make(chan error, 1)
	go func() {
		_, err := client.Check(as(t, "somebody"), request("wait", 90_000), grpc.UseCompressor(gzip.Name))
		first <- err
	}()
	eventually(t, func() bool {
		if len(first) > 0 {
			t.Fatalf("the first is over: %v", <-first)
		}
		return s.ledger.costs()[messages] == 100_000
	})
	_, err := client.Check(as(t, "somebody"), request("", 90_000), grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("the second: %v", err)
	}
	close(service.release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestSecondRequest: a call that takes one request does not take another one.
func TestSecondRequest(t *testing.T) {
	conn, _ := serveConn(t, Options{Bounds: BoundsFor(1 << 30)}, &service{})
	stream, err := conn.NewStream(as(t, "somebody"), &grpc.StreamDesc{ClientStreams: true}, check)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(stream, 2); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "second request") {
		t.Error(err)
	}
}
