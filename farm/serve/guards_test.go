package serve

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/intake"
)

// guarded is a Protection that asks for identities.
func guarded(t *testing.T) Protection {
	t.Helper()
	g, err := auth.New(auth.Options{Certificates: true})
	if err != nil {
		t.Fatal(err)
	}
	return Protection{Guard: g}
}

// from is the context of a call from an address.
func from(t *testing.T, a net.Addr, info arrived) context.Context {
	return peer.NewContext(t.Context(), &peer.Peer{Addr: a, AuthInfo: info})
}

// TestWhoIsCharged: a call is charged to its address, as a guest's if an identity is required. A
// call of this process is charged to no one. A faulty connection has its calls refused.
func TestWhoIsCharged(t *testing.T) {
	const method = "/grpc.health.v1.Health/Check"
	refused := status.Error(codes.PermissionDenied, "another user")
	address := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for name, test := range map[string]struct {
		protect Protection
		ctx     context.Context
		want    intake.Caller
		err     codes.Code
	}{
		"nobody is asked":    {Protection{}, from(t, address, arrived{}), intake.Caller{Name: "address 10.0.0.1"}, codes.OK},
		"a guest":            {guarded(t), from(t, address, arrived{}), intake.Caller{Name: "address 10.0.0.1", Guest: true}, codes.OK},
		"this process":       {guarded(t), from(t, inProcessAddr{}, arrived{}), intake.Caller{}, codes.OK},
		"a wrong connection": {Protection{}, from(t, address, arrived{refused: refused}), intake.Caller{}, codes.PermissionDenied},
	} {
		_, who, err := test.protect.identify(test.ctx, method)
		if who != test.want || status.Code(err) != test.err {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}

// TestWhoIsPending: until its token is verified, a call is charged to its address, unless
// authentication is off.
func TestWhoIsPending(t *testing.T) {
	p := guarded(t)
	o := p.intake(nil, &Activity{})
	if o.Look == nil || o.Pending == nil || Protection.intake(Protection{}, nil, &Activity{}).Pending != nil {
		t.Fatal("who is asked, and who is not, is the other way round")
	}
	ctx := from(t, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, arrived{})
	execute := repb.Execution_Execute_FullMethodName
	if got := o.Pending(ctx, execute); got != "address 10.0.0.1" {
		t.Errorf("a call that is to be verified is charged to %q", got)
	}
	for name, got := range map[string]string{
		"a health check": o.Pending(ctx, "/grpc.health.v1.Health/Check"), "this process": o.Pending(from(t, inProcessAddr{}, arrived{}), execute),
	} {
		if got != "" {
			t.Errorf("%s is charged to %q", name, got)
		}
	}
	for method, l := range o.Methods {
		if health := strings.HasPrefix(method, "/grpc.health.v1.Health/"); l.FewHeaders != health {
			t.Errorf("%s takes few headers: %t", method, l.FewHeaders)
		}
	}
}

// TestBoundsOfCallers: limits that are set apply, and invalid ones are refused.
func TestBoundsOfCallers(t *testing.T) {
	c := Callers{Memory: Memory{Limit: "1G"}, MaxConnections: 80, MaxStreams: 7, UploadWindow: "128K", ReceiveTimeout: time.Second}
	_, b, err := c.bounds()
	if err != nil || b.Connections != 80 || b.ConnectionsOfOne != 40 || b.Guests != 20 || b.GuestsOfOne != 10 || b.Streams != 7 ||
		b.Window != 128<<10 || b.Wait != time.Second {
		t.Errorf("%+v, %v", b, err)
	}
	for _, window := range []string{"1K", "17M", "x"} {
		c := Callers{UploadWindow: window}
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "tuning.upload_window") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if n, err := (&Callers{Memory: Memory{Limit: "128M"}}).TokenBytes(); err != nil || n != 1<<20 {
		t.Errorf("%d bytes of tokens, %v", n, err)
	}
}

// TestPagesNeedRights: an observer may read metrics, but no profiles. A local port accepts only
// local host names and, if it is for one user, only that user.
func TestPagesNeedRights(t *testing.T) {
	get := func(h http.Handler, path, host string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Host = host
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	g, err := auth.New(auth.Options{Certificates: true, Rules: []auth.Rule{{Anyone: true, May: []auth.Right{auth.Observe}}}})
	if err != nil {
		t.Fatal(err)
	}
	what := Shown{Registry: NewRegistry(), Ready: &Readiness{}, Pages: http.NotFoundHandler()}
	h := Handler("192.0.2.1:80", Protection{Guard: g}, what)
	if metrics, profile := get(h, "/metrics", "x"), get(h, "/debug/pprof/symbol", "x"); metrics != http.StatusOK || profile == http.StatusOK {
		t.Errorf("who observes gets metrics: %d, profiles: %d", metrics, profile)
	}
	local := Handler("127.0.0.1:80", Protection{}, what)
	if own, other := get(local, "/metrics", "127.0.0.1:80"), get(local, "/metrics", "attacker.example"); own != http.StatusOK || other == http.StatusOK {
		t.Errorf("by its own name: %d, by another: %d", own, other)
	}
	own := Handler("127.0.0.1:80", Protection{OwnUser: true}, what)
	for _, path := range []string{"/", "/metrics"} { // from an address that no socket of this machine has
		if code := get(own, path, "127.0.0.1:80"); code != http.StatusForbidden {
			t.Errorf("%s of a port for one user: %d", path, code)
		}
	}
}

// TestOnlyTheOwner: of users that are known only the own one and root are let in.
func TestOnlyTheOwner(t *testing.T) {
	for uid, want := range map[int]bool{1000: true, 0: true, 1001: false} {
		if isOwn(uid, 1000) != want {
			t.Errorf("user %d: %t", uid, !want)
		}
	}
}

// TestClosedSockets: a socket that its process has closed belongs to no one, whatever the table
// says.
func TestClosedSockets(t *testing.T) {
	a, b := netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.1:4660")
	for state, want := range map[string]int{"01": 1000, "06": 0} {
		table := "0: 0100007F:1F90 0100007F:1234 " + state + " 00000000:00000000 00:00000000 00000000 1000 0 5 1\n"
		uid, err := findSocket(bufio.NewScanner(strings.NewReader(table)), a, b)
		if uid != want || (err == nil) != (want != 0) {
			t.Errorf("in state %s: user %d, %v", state, uid, err)
		}
	}
}
