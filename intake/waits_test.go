package intake

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// TestCallsThatWait has two callers take all calls, some of which wait. Others must get calls until
// all callers have equally many. Calls of methods that do not wait for others must stay.
func TestCallsThatWait(t *testing.T) {
	for name, waits := range map[string]bool{"wait": true, "work": false} {
		t.Run(name, func(t *testing.T) {
			b := BoundsFor(1 << 30)
			b.Calls, b.CallsOfOne, b.Wait = 12, 6, time.Minute
			client, service, s := serve(t, Options{Bounds: b, Methods: map[string]Limits{check: {Waits: waits}}})
			ended := make(chan error, 20)
			call := func(caller string) {
				_, err := client.Check(as(t, caller), request("wait", 0), grpc.WaitForReady(true))
				ended <- err
			}
			for range 6 {
				go call("greedy")
				go call("too")
			}
			eventually(t, func() bool { return s.ledger.costs()[calls] == 12 && s.ledger.phases()[busy] == 12 })
			// A caller that ends calls as fast as new ones come has them all in memory for a while.
			if _, err := client.Check(as(t, "modest"), request("", 0)); err == nil {
				t.Error("a call makes room that has hardly begun")
			}
			s.ledger.age(time.Hour)
			_, err := client.Check(as(t, "modest"), request("", 0))
			if waits == (err != nil) {
				t.Errorf("a caller who has none: %v", err)
			}
			want := 0
			if waits {
				eventually(t, func() bool { return service.expired.Load() == 1 })
				for range 4 {
					go call("modest")
				}
				want = 4
			}
			for range want {
				if err := <-ended; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "make room") {
					t.Errorf("a call that makes room ends with %v", err)
				}
			}
			eventually(t, func() bool { return s.ledger.phases()[busy] >= 11 })
			if err := func() error { _, err := client.Check(as(t, "greedy"), request("", 0)); return err }(); waits && err != nil &&
				!strings.Contains(err.Error(), "calls in flight") {
				t.Error(err)
			}
			close(service.release)
			for range 12 {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			eventually(t, s.ledger.free)
		})
	}
}

// TestRoomIsFreeOnceCallsHaveEnded has a call make room whose handler ends slowly. No other call
// may take its place before that.
func TestRoomIsFreeOnceCallsHaveEnded(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Calls, b.CallsOfOne, b.Wait = 2, 2, time.Minute
	var begun atomic.Int64
	service := &service{release: make(chan struct{}), linger: make(chan struct{}), called: func(string) { begun.Add(1) }}
	conn, s := serveConn(t, Options{Bounds: b, Methods: map[string]Limits{check: {Waits: true}}}, service)
	client := healthpb.NewHealthClient(conn)
	ended, modest := make(chan error, 2), make(chan error, 1)
	call := func(caller, what string, ended chan<- error) {
		_, err := client.Check(as(t, caller), request(what, 0))
		ended <- err
	}
	go call("greedy", "wait", ended)
	go call("greedy", "wait", ended)
	eventually(t, func() bool { return begun.Load() == 2 })
	s.ledger.age(time.Hour)
	go call("modest", "", modest)
	eventually(t, func() bool { return service.expired.Load() == 1 && s.ledger.phases()[queued] == 1 })
	if n := begun.Load(); n != 2 {
		t.Errorf("%d calls have begun where there is room for two", n)
	}
	close(service.linger)
	if err := <-modest; err != nil {
		t.Errorf("who has none: %v", err)
	}
	if err := <-ended; status.Code(err) != codes.ResourceExhausted {
		t.Errorf("who makes room is told %v", err)
	}
	close(service.release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	eventually(t, s.ledger.free)
}

// TestCallsThatLinger has a call make room whose handler never ends. The new call must get an error
// in time, and the place must stay taken.
func TestCallsThatLinger(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Calls, b.CallsOfOne, b.Wait = 1, 1, 2*time.Second
	service := &service{release: make(chan struct{}), linger: make(chan struct{})}
	conn, s := serveConn(t, Options{Bounds: b, Methods: map[string]Limits{check: {Waits: true}}}, service)
	client := healthpb.NewHealthClient(conn)
	ended := make(chan error, 1)
	go func() {
		_, err := client.Check(as(t, "greedy"), request("wait", 0))
		ended <- err
	}()
	eventually(t, func() bool { return s.ledger.phases()[busy] == 1 })
	s.ledger.age(time.Hour)
	if _, err := client.Check(as(t, "modest"), request("", 0)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a call whose place is not free: %v", err)
	}
	if n := s.ledger.costs()[calls]; n != 1 {
		t.Errorf("%d calls are charged for, want 1", n)
	}
	close(service.linger)
	<-ended
	eventually(t, s.ledger.free)
	if _, err := client.Check(as(t, "modest"), request("", 0)); err != nil {
		t.Error(err)
	}
}

// TestWaitingCallsOfOne has waiting calls of one caller. They must not make room for the same
// caller.
func TestWaitingCallsOfOne(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.CallsOfOne, b.Wait = 3, time.Minute
	service := &service{release: make(chan struct{})}
	conn, s := serveConn(t, Options{Bounds: b, Methods: map[string]Limits{check: {Waits: true}}}, service)
	ended := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := healthpb.NewHealthClient(conn).Check(as(t, "somebody"), request("wait", 0))
			ended <- err
		}()
	}
	eventually(t, func() bool { return s.ledger.phases()[busy] == 3 })
	s.ledger.age(time.Hour)
	if _, err := healthpb.NewHealthClient(again(t, conn)).Check(as(t, "somebody"), request("", 0)); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "somebody has 3 calls in flight") {
		t.Errorf("his other connection: %v", err)
	}
	close(service.release)
	for range 3 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestNothingIsTakenInVain has a guest come who cannot be admitted, and one who can. Only necessary
// calls may end.
func TestNothingIsTakenInVain(t *testing.T) {
	b := Bounds{Calls: 4, CallsOfOne: 4, GuestCalls: 2, GuestCallsOfOne: 1, Waiting: 4, WaitingOfOne: 4, Wait: time.Minute}
	l := newLedger(b, func(string) {})
	var ended []string
	enter := func(caller Caller, expire func(c *charge)) (err error) {
		var c *charge
		c, err = l.enter(t.Context(), caller, "line of "+caller.Name, 1, func() {
			ended = append(ended, caller.Name)
			expire(c)
		})
		if err == nil {
			l.letYield(c)
			l.enterPhase(c, busy)
		}
		return err
	}
	leave := func(c *charge) { l.leave(c, nil) }
	for _, caller := range []Caller{{Name: "known"}, {Name: "known"}, {Name: "guest 1", Guest: true}, {Name: "guest 2", Guest: true}} {
		if err := enter(caller, leave); err != nil {
			t.Fatal(err)
		}
	}
	l.age(time.Hour)
	if err := enter(Caller{Name: "guest 1", Guest: true}, leave); err == nil || len(ended) != 0 {
		t.Errorf("a second call of a guest: %v, %v made room for it", err, ended)
	}
	if err := enter(Caller{Name: "guest 3", Guest: true}, leave); err != nil || len(ended) != 1 || ended[0] == "known" {
		t.Errorf("another guest: %v, %v made room for it", err, ended)
	}
	if now := l.costs(); now[calls] != 4 || now[guests] != 2 {
		t.Errorf("%v are charged for", now)
	}
}

// phases are how many calls are at each.
func (l *ledger) phases() map[phase]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[phase]int{}
	for _, a := range l.accounts {
		for _, c := range a.lines {
			for o := range c.open {
				n[o.phase]++
			}
		}
	}
	return n
}

// TestCallsOfGuests has callers without identity take all calls that guests may have. Known callers
// must get the remaining ones, and another guest must get some of the guests'.
func TestCallsOfGuests(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.Calls, b.CallsOfOne, b.GuestCalls, b.GuestCallsOfOne, b.Wait = 12, 6, 4, 2, time.Minute
	client, service, s := serve(t, Options{
		Bounds: b, Methods: map[string]Limits{check: {Waits: true}},
		Identify: func(ctx context.Context, _ string) (context.Context, Caller, error) {
			name := strings.Join(metadata.ValueFromIncomingContext(ctx, "caller"), "")
			return ctx, Caller{Name: name, Guest: strings.HasPrefix(name, "guest")}, nil
		},
	})
	ended := make(chan error, 20)
	call := func(caller string) {
		_, err := client.Check(as(t, caller), request("wait", 0))
		ended <- err
	}
	for _, caller := range []string{"guest 1", "guest 1", "guest 2", "guest 2", "known", "known", "known", "known", "known", "known"} {
		go call(caller)
	}
	eventually(t, func() bool { return s.ledger.phases()[busy] == 10 })
	if _, err := client.Check(as(t, "guest 1"), request("", 0)); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "callers without identity") {
		t.Errorf("one more: %v", err)
	}
	s.ledger.age(time.Hour)
	if _, err := client.Check(as(t, "guest 3"), request("", 0)); err != nil {
		t.Errorf("another guest: %v", err)
	}
	if err := <-ended; status.Code(err) != codes.ResourceExhausted {
		t.Errorf("who makes room is told %v", err)
	}
	close(service.release)
	for range 9 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	eventually(t, s.ledger.free)
}

// TestHost: all addresses of a network that one customer may own count as one caller.
func TestHost(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[::1]:5": "::1",
		"[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::/64", "[2001:db8:1:2::]:7": "2001:db8:1:2::/64", "[fe80::1%eth0]:1": "fe80::/64",
		"localhost:1": "localhost", "pipe": "pipe",
	} {
		if got := Host(named(address)); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

type named string

func (named) Network() string  { return "test" }
func (n named) String() string { return string(n) }

// TestGuestsOfManyHosts has some hosts take all places of guests. The host with the most must lose
// one, not the oldest guest.
func TestGuestsOfManyHosts(t *testing.T) {
	g := NewGate(Bounds{Connections: 100, ConnectionsOfOne: 50, Guests: 7, GuestsOfOne: 4, Guest: time.Hour}, func(string) {})
	enter := func(host string) *fakeConn {
		raw := &fakeConn{addr: &net.TCPAddr{IP: net.ParseIP(host), Port: 1}}
		g.enter(raw)
		return raw
	}
	honest := enter("10.0.0.1")
	for range 3 {
		enter("10.0.0.2")
		enter("10.0.0.3")
	}
	for range 20 {
		enter("10.0.0.2")
		enter("10.0.0.3")
	}
	if honest.closed {
		t.Error("the only one of its host makes room for hosts that have three")
	}
}

// TestFewHeaders has a call with more headers than its method accepts. It must be refused before it
// is authenticated.
func TestFewHeaders(t *testing.T) {
	client, _, _ := serve(t, Options{
		Bounds: BoundsFor(1 << 30), Methods: map[string]Limits{check: {FewHeaders: true}},
		Identify: func(ctx context.Context, _ string) (context.Context, Caller, error) {
			if callsOf(ctx) > 1 {
				t.Error("somebody is asked who calls")
			}
			return ctx, Caller{Name: "guest", Guest: true}, nil
		},
	})
	if _, err := client.Check(t.Context(), request("", 0)); err != nil {
		t.Error(err)
	}
	many := t.Context()
	for i := range 200 {
		many = metadata.AppendToOutgoingContext(many, fmt.Sprintf("x%d", i), "y")
	}
	if _, err := client.Check(many, request("", 0)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("many headers: %v", err)
	}
}
