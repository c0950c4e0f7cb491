package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// An upload is a service with one method that takes a stream of requests.
var upload = grpc.ServiceDesc{
	ServiceName: "test.Upload",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName: "Put", ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				var piece healthpb.HealthCheckRequest
				if err := stream.RecvMsg(&piece); errors.Is(err, io.EOF) {
					return stream.SendMsg(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING})
				} else if err != nil {
					return err
				}
				var n int64
				if _, err := fmt.Sscanf(piece.Service, "reserve %d", &n); err == nil {
					if err := Reserve(stream.Context(), n); err != nil {
						return err
					}
				}
			}
		},
	}},
}

// put begins an upload.
func put(t *testing.T, conn *grpc.ClientConn, caller string) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(as(t, caller), &upload.Streams[0], "/test.Upload/Put")
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// fill has an upload send that many requests and end, and returns the server's error.
func fill(stream grpc.ClientStream, pieces int) error {
	for range pieces {
		if err := stream.SendMsg(request("", 100_000)); err != nil {
			break // why is in the answer
		}
	}
	_ = stream.CloseSend()
	return stream.RecvMsg(&healthpb.HealthCheckResponse{})
}

// again returns a further connection to where conn leads.
func again(t *testing.T, conn *grpc.ClientConn) *grpc.ClientConn {
	t.Helper()
	more, err := grpc.NewClient(conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = more.Close() })
	return more
}

// TestConnectionsAreApart has one connection take everything that its caller may have, with
// requests that never arrive. Another connection of the caller, which has nothing, must get what it
// needs from the first one.
func TestConnectionsAreApart(t *testing.T) {
	const hung = 20
	for name, bound := range map[string]func(*Bounds){
		"calls":   func(b *Bounds) { b.CallsOfOne = hung },
		"of all":  func(b *Bounds) { b.Calls = hung },
		"uploads": func(b *Bounds) { b.UploadsOfOne = hung * uploadBytes },
	} {
		t.Run(name, func(t *testing.T) {
			b := BoundsFor(1 << 30)
			b.Wait = time.Minute
			bound(&b)
			conn, s := serveConn(t, Options{Bounds: b}, &service{})
			var greedy []grpc.ClientStream
			for range hung {
				greedy = append(greedy, put(t, conn, "somebody"))
			}
			eventually(t, func() bool { return s.ledger.costs()[uploads] == hung*uploadBytes })
			s.ledger.age(time.Hour)
			if err := fill(put(t, again(t, conn), "somebody"), 100); err != nil {
				t.Errorf("the connection that has nothing: %v", err)
			}
			yielded := 0
			for _, stream := range greedy {
				if err := fill(stream, 1); status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "make room") {
					yielded++
				} else if err != nil {
					t.Error(err)
				}
			}
			if yielded != 1 {
				t.Errorf("%d calls made room, want 1", yielded)
			}
			eventually(t, s.ledger.free)
		})
	}
}

// age makes all calls have waited for longer.
func (l *ledger) age(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		a.searched = [kinds]time.Time{}
		for _, c := range a.lines {
			for o := range c.open {
				o.since = o.since.Add(-by)
			}
		}
	}
}

// TestFastCallsStay has a connection need room that active calls have. It must wait for them.
func TestFastCallsStay(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.UploadsOfOne, b.Wait = uploadBytes, time.Minute
	conn, s := serveConn(t, Options{Bounds: b}, &service{})
	first := put(t, conn, "somebody")
	eventually(t, func() bool { return s.ledger.costs()[uploads] == uploadBytes })
	second := make(chan error, 1)
	go func() { second <- fill(put(t, again(t, conn), "somebody"), 1) }()
	eventually(t, func() bool { return s.ledger.costs()[waiting] == 1 })
	if err := fill(first, 10); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := <-second; err != nil {
		t.Errorf("the second: %v", err)
	}
}

// TestShares has one connection need more than others have. No call may make room for it.
func TestShares(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.CallsOfOne = 10
	conn, s := serveConn(t, Options{Bounds: b}, &service{})
	other := again(t, conn)
	for i := range 10 {
		put(t, []*grpc.ClientConn{conn, other}[i%2], "somebody")
	}
	eventually(t, func() bool { return s.ledger.costs()[uploads] == 10*uploadBytes })
	s.ledger.age(time.Hour)
	if err := fill(put(t, conn, "somebody"), 1); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "has 10 calls") {
		t.Error(err)
	}
	if n := s.ledger.costs()[calls]; n != 10 {
		t.Errorf("%d calls, want 10", n)
	}
}

// TestLedger has many callers ask for, get, give back and lose all kinds at the same time: no bound
// is ever passed, and nothing is left in the end.
func TestLedger(t *testing.T) {
	b := Bounds{
		Calls: 40, CallsOfOne: 20, Uploads: 20, UploadsOfOne: 10, Windows: 10, WindowsOfOne: 5, Messages: 100, MessagesOfOne: 60,
		Waiting: 16, WaitingOfOne: 8, Wait: time.Second,
	}
	l := newLedger(b, func(string) {})
	within := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for k := range kinds {
			if l.now[k] < 0 || l.now[k] > l.all[k] {
				t.Errorf("kind %d: %d of %d", k, l.now[k], l.all[k])
			}
			for _, a := range l.accounts {
				if a.now[k] < 0 || a.now[k] > l.one[k] {
					t.Errorf("kind %d of %s: %d of %d", k, a.key, a.now[k], l.one[k])
				}
			}
		}
	}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				c, err := l.enter(ctx, Caller{Name: string(rune('a' + i%3))}, string(rune('a'+i%8)), 1, cancel)
				if err == nil {
					err = l.reserve(ctx, c, uploads, 1)
					for range random.IntN(4) {
						if err == nil {
							err = l.reserve(ctx, c, messages, 1+random.Int64N(50))
						}
						if err == nil {
							l.enterPhase(c, arriving)
							err = l.reserve(ctx, c, windows, 1)
						}
						within()
						l.arrive(c)
					}
					l.leave(c, nil)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if !l.free() {
		t.Errorf("%v are left", l.costs())
	}
}

// TestBuffers has calls reserve memory while they are answered. The limits must hold, requests that
// one caller can never have must be refused at once, and waiting calls must release memory that
// would block others.
func TestBuffers(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Wait = time.Minute
	b.Messages, b.MessagesOfOne = 200_000, 200_000 // for one upload
	b.Buffers, b.BuffersOfOne = 1000, 1000
	conn, s := serveConn(t, Options{Bounds: b}, &service{})
	reserve := func(n string) grpc.ClientStream {
		stream := put(t, conn, "somebody")
		large := request("reserve "+n+" ", 150_000)
		if err := stream.SendMsg(large); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	if err := fill(reserve("1001"), 0); status.Code(err) != codes.InvalidArgument {
		t.Errorf("more than there is: %v", err)
	}
	first := reserve("1000")
	eventually(t, func() bool { return s.ledger.costs()[buffers] == 1000 })
	var others []grpc.ClientStream
	for range 3 {
		others = append(others, reserve("600"))
	}
	eventually(t, func() bool { return s.ledger.costs()[waiting] == 3*(1+150_000/int64(b.Window)) })
	var all sync.WaitGroup
	for i, stream := range append([]grpc.ClientStream{first}, others...) {
		all.Go(func() {
			if err := fill(stream, 3); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	eventually(t, s.ledger.free)
}
